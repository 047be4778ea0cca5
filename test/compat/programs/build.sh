# make, gcc and the binutils; static, shared and loaded programs; archives. Prints one line for each
# thing that worked.
set -eu

for i in 1 2 3 4; do
  printf 'int part_%s(void) { return %s; }\n' "$i" "$i" >"part-$i.c"
done
cat >main.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
int part_1(void), part_2(void), part_3(void), part_4(void);
int main(int count, char **names) {
    int (*loaded)(void) = 0;
    if (count > 1) {
        void *library = dlopen(names[1], RTLD_NOW);
        loaded = library ? (int (*)(void))dlsym(library, "part_4") : 0;
    }
    printf("%d\n", part_1() + part_2() + part_3() + (loaded ? loaded() : part_4()));
    return 0;
}
C
cat >Makefile <<'MAKE'
OBJECTS := part-1.o part-2.o part-3.o part-4.o
all: dynamic static shared.so
%.o: %.c
	gcc -fPIC -c -o $@ $<
libparts.a: $(OBJECTS)
	ar rcs $@ $^
dynamic: main.o libparts.a
	gcc -o $@ $^ -ldl
static: main.o libparts.a
	gcc -static -o $@ $^ 2>/dev/null
shared.so: $(OBJECTS)
	gcc -shared -o $@ $^
MAKE
make -s -j4
./dynamic
./dynamic ./shared.so
./static
[ -z "$(make -q && echo)" ]
strip static
./static
echo 'int main(void) { __builtin_trap(); }' | gcc -x c -o crash -
[ "$(perl -e 'system "./crash"; print $? & 127')" = 4 ]
echo built

mkdir tree
for i in $(seq 40); do head -c 5000 /dev/urandom >"tree/$i"; done
ln -s 1 tree/link
ln tree/1 tree/hard
tar cf - tree | xz -T2 -1 >tree.tar.xz
mkdir out
tar xJf tree.tar.xz -C out
diff -r tree out/tree
[ out/tree/1 -ef out/tree/hard ]
tar czf tree.tar.gz --sparse --xattrs tree
tar tzf tree.tar.gz | wc -l
bzip2 -c tree/1 | bunzip2 -c | cmp - tree/1
echo packed
