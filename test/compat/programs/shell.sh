# bash: pipelines, process substitution, job control, here documents. Prints one line for each thing
# that worked.
set -eu

seq 100000 | tee >(wc -l >lines) >(md5sum >sum) | awk '{ t += $1 % 10 } END { print t }'
paste <(seq 3) <(printf 'a\nb\nc\n') | sort -r | head -n1
yes | head -n 1000 | sort -u
set -o pipefail
if false | true; then exit 1; fi
mapfile -t parts < <(printf '%s\n' one two)
[ "${#parts[@]}" = 2 ]
cat <<<"here" | tr a-z A-Z
exec 7<>pad
echo written >&7
exec 7>&-
read -r line <pad
[ "$line" = written ]
echo pipes

set -m
sleep 300 &
one=$!
sleep 300 | cat &
two=$!
jobs -p | wc -l
{
  kill %1 %2
  # By their pids: a job that bash has told of is no job any more.
  wait "$one" || [ $? -gt 128 ]
  wait "$two" || [ $? -gt 128 ]
  (trap 'echo term; exit 7' TERM; : >ready; while :; do :; done) &
  until [ -e ready ]; do sleep 0.01; done
  kill %%
  wait $! || [ $? -eq 7 ]
} 2>notices
set +m
for i in 1 2 3 4; do (exit "$i") & done
wait -n || :
wait
echo jobs

timeout -s INT 0.1 sleep 300 || [ $? -eq 124 ]
nice -n 5 true
nohup true 2>/dev/null
setsid -w true
env -i /bin/sh -c 'echo ${HOME-none}'
flock lock echo locked
xargs -P 4 -n 1 echo < <(seq 8) | wc -l
find . -newer lock -o -name pad | grep -c pad
stdbuf -oL echo buffered
echo tools
