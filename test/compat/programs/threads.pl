# Perl's threads, System V queues, dbm files, regular expressions and unix sockets. Prints one line for
# each thing that worked.
use strict;
use warnings;
use threads;
use threads::shared;
use Fcntl qw(:DEFAULT :flock);
use IO::Select;
use IO::Socket::UNIX;
use IPC::SysV qw(IPC_PRIVATE IPC_RMID S_IRUSR S_IWUSR);
use SDBM_File;
use Storable qw(dclone);

my $total : shared = 0;
my @threads = map { my $n = $_; threads->create(sub { lock $total; $total += $n; $n * $n }) } 1 .. 4;
my @squares = map { $_->join } @threads;
die "@squares" if "@squares" ne "1 4 9 16" || $total != 10;
print "threads\n";

my $queue = msgget(IPC_PRIVATE, S_IRUSR | S_IWUSR) // die $!;
msgsnd($queue, pack("l! a*", 1, "through"), 0) or die $!;
my $message;
msgrcv($queue, $message, 100, 0, 0) or die $!;
die if (unpack "l! a*", $message)[1] ne "through";
msgctl($queue, IPC_RMID, 0);
my $semaphore = semget(IPC_PRIVATE, 1, S_IRUSR | S_IWUSR) // die $!;
semop($semaphore, pack "s3", 0, 1, 0) or die $!;
semctl($semaphore, 0, IPC_RMID, 0);
print "queues\n";

my $server = IO::Socket::UNIX->new(Local => "perl-socket", Listen => 5) or die $!;
my $pid = fork() // die;
if ($pid == 0) {
    my $peer = IO::Socket::UNIX->new(Peer => "perl-socket") or die $!;
    print $peer "hello\n";
    exit 0;
}
my $peer = (IO::Select->new($server)->can_read(30))[0]->accept;
die if <$peer> ne "hello\n";
waitpid $pid, 0;
print "sockets\n";

tie my %file, "SDBM_File", "dbm", O_RDWR | O_CREAT, 0600 or die $!;
$file{$_} = $_ * 2 for 1 .. 100;
untie %file;
open my $lock, ">", "lock" or die $!;
flock $lock, LOCK_EX | LOCK_NB or die $!;
die if dclone({ a => [1, 2] })->{a}[1] != 2;
my $text = join ",", map { "k$_=v$_" } 1 .. 1000;
die if scalar(() = $text =~ /k(\d+)=v\1/g) != 1000;
print "files\n";
