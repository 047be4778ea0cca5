# What ordinary Perl programs do. Prints one line for each thing that worked.
use strict;
use warnings;
use IPC::Open2;
use POSIX ();
use Socket;
use Time::HiRes qw(alarm usleep);

pipe(my $reader, my $writer) or die;
my $pid = fork() // die;
if ($pid == 0) { syswrite $writer, "child"; POSIX::_exit(7); }
waitpid($pid, 0);
die $? if $? >> 8 != 7;
sysread $reader, my $text, 5;
die if $text ne "child";
print "fork\n";

my $child = open2(my $out, my $in, "tr", "a-z", "A-Z");
print $in "through\n";
close $in;
die if <$out> ne "THROUGH\n";
waitpid($child, 0);
die if `echo shell` ne "shell\n";
print "programs\n";

socketpair(my $left, my $right, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die;
die "network" if socket(my $network, PF_INET, SOCK_STREAM, 0);
die $! unless $!{EAFNOSUPPORT};
my $alarms = 0;
local $SIG{ALRM} = sub { $alarms++ };
alarm(0.01);
kill ALRM => $$;
usleep(1000) until $alarms == 2;
print "sockets\n";
