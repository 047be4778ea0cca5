# git on repositories of this machine. Prints one line for each thing that worked.
set -eu
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

git init -q -b main origin
for i in $(seq 9); do
  echo "$i" >"origin/file-$i"
  git -C origin add .
  git -C origin commit -qm "commit $i"
done
[ "$(git -C origin rev-list --count HEAD)" = 9 ]
echo commits

git clone -q origin linked
git clone -q --no-local --depth 3 "file://$PWD/origin" packed
git clone -q --bare origin bare.git
[ "$(git -C packed rev-list --count HEAD)" = 3 ]
git -C linked checkout -qb topic
echo more >>linked/file-1
git -C linked commit -qam topic
git -C linked push -q ../bare.git topic
git -C bare.git log -1 --format=%s topic
echo clones

git -C linked worktree add -q ../tree main
git -C linked stash list
git -C linked rebase -q main topic
git -C linked merge -q --no-ff -m merge topic
git -C linked bundle create -q ../bundle --all
git clone -q -b topic bundle unbundled
git -C linked archive --format=tar HEAD | tar tf - | grep -qx file-9
git -C linked grep -qw 9
echo work

git -C origin gc -q --aggressive --prune=now
git -C origin repack -adq --threads=2
git -C origin fsck --strict --no-progress
git -C origin -c core.fsmonitor=false status --porcelain | wc -l
echo upkeep
