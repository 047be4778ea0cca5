# What ordinary shell scripts do. Prints one line for each thing that worked.
set -eu

printf '%s\n' b a c | sort | tr a-z A-Z | paste -sd, - | grep -qx A,B,C
diff <(seq 3) <(printf '1\n2\n3\n')
echo pipes

(exit 3) && false || [ $? -eq 3 ]
timeout 5 true
sleep 0.01 &
wait $!
coproc cat
echo through >&"${COPROC[1]}"
read -r line <&"${COPROC[0]}"
[ "$line" = through ]
exec {COPROC[1]}>&-
wait
trap 'echo trapped' USR1
kill -USR1 $$
echo jobs

# Job control: the background job gets a process group of its own.
set -m
sleep 300 &
group=$!
kill -STOP -- "-$group"
kill -CONT -- "-$group"
kill -- "-$group"
{ wait "$group" || true; } 2>job
set +m
ulimit -n 100
ulimit -c 0
echo control

mkfifo pipe
cat pipe >copy &
echo fifo >pipe
wait
cmp copy <(echo fifo)
mkdir -p a/b
cp -a a c
ln -s a/b link
chmod 700 a
touch -d @0 a/b/file
find . -name file | xargs stat -c %Y | grep -qx 0
tar cf - a | gzip | tar xzf - -O >/dev/null
dd if=/dev/zero of=zeros bs=1M count=2 conv=fsync status=none
truncate -s 1G sparse
sort -R --parallel=2 -o shuffled <(seq 100000)
wc -l <shuffled
sync
df . >/dev/null
echo files
