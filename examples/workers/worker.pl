#!/usr/bin/perl
# A worker in Perl; the protocol is in docs/worker-protocol.md.
# A function is the text of a Perl sub's body; arguments and results are JSON.
use strict; use warnings; use JSON::PP; use POSIX (); use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $json = JSON::PP->new->utf8->allow_nonref;
my ($buffer, $call, %text, %code) = ("", 0);
POSIX::setpgid(0, 0);
$_->autoflush(1) for *STDOUT, *STDERR;
open(my $in, "<&=", 3) or die; open(my $out, ">&=", 4) or die; open(my $word, "+<&=", 5) or die;
$SIG{INT} = sub { die "cancelled\n" if $call && target() == $call };

sub now { int(clock_gettime(CLOCK_MONOTONIC) * 1e9) }
sub target { sysseek($word, 24, 0); sysread($word, my $bytes, 8); unpack("Q<", $bytes) }
sub word { sysseek($word, 0, 0); syswrite($word, pack("Q<Q<", @_)) }
sub send_record {
    my ($kind, $body) = @_;
    my $frame = pack("V V C", length($body) + 5, length($body), $kind) . $body;
    while (length $frame) { my $n = syswrite($out, $frame) or exit 0; substr($frame, 0, $n, "") }
}
sub garbage { print STDERR "worker.pl: garbage from the node: $_[0]\n"; POSIX::_exit(70) }
sub value { my ($codec, $bytes) = @_; pack("C C v V", 0, $codec, 0, length $bytes) . $bytes }
sub large { my ($bytes) = @_; my $path = "$ENV{STARLING_WORKER_OBJECTS}/$$.$call.0";
    open(my $file, ">", $path) or die "$path: $!\n"; print $file $bytes; close $file;
    pack("C C v V", 1, 3, 0, length $path) . $path }
sub load { my ($how, $codec, $bytes) = @_;
    if ($how == 1) { open(my $file, "<", $bytes) or die "$bytes: $!\n"; local $/; $bytes = <$file> }
    $codec == 3 ? $json->decode($bytes) : $bytes }
sub fill { my ($at, $inputs) = @_;
    return [map { fill($_, $inputs) } @$at] if ref $at eq "ARRAY";
    return $at if ref $at ne "HASH";
    return $inputs->{$at->{'$slot'}} if exists $at->{'$slot'};
    return { map { $_ => fill($at->{$_}, $inputs) } keys %$at } }
sub printed { my ($fd) = @_;
    open(my $file, "+<", "/dev/fd/$fd") or return; local $/;
    my $bytes = <$file> // ""; truncate($file, 0);
    $bytes = substr($bytes, -1_000_000);
    while (length $bytes) { send_record(67, pack("Q< C Q<", $call, $fd, 0) . substr($bytes, 0, 200_000, "")) } }

sub run_call { my ($body) = @_;
    garbage("CALL of " . length($body) . " bytes") if length $body < 72;
    ($call, my $id, my $n) = (unpack("Q< a16", $body), unpack("x62 v", $body));
    my ($at, $start, $status, @values) = (64, now(), 0);
    word($call, $start);
    my $result = eval {
        my ($args, %inputs) = [];
        for my $k (1 .. $n) {
            my ($how, $codec, $slot, $length) = unpack("C C v V", substr($body, $at, 8));
            my $bytes = substr($body, $at + 8, $length); $at += 8 + $length;
            if ($k > 1) { $inputs{$slot} = load($how, $codec, $bytes) }
            elsif (length $bytes) { $args = load($how, $codec, $bytes) } }
        $status = 2;
        die "unknown function\n" unless defined $text{$id};
        $code{$id} //= eval "sub { $text{$id} }" // die $@;
        $status = 1;
        die "cancelled\n" if target() == $call;
        my $bytes = $json->encode($code{$id}->(@{ fill($args, \%inputs) }));
        $status = 0; length $bytes > 65536 ? large($bytes) : value(3, $bytes) };
    if (my $error = $@) { $status ||= 2; $status = 3 if $error eq "cancelled\n"; chomp $error;
        $result = value(3, $json->encode({ type => "die", text => "$error", frames => "" })) }
    printed(1); printed(2);
    send_record(66, pack("Q< Q< Q< Q< C C v V", $call, $start, now(), 0, $status, 0, 1, 0) . $result);
    ($call) = (0); word(0, 0) }

send_record(65, $json->encode({ protocol => 1, language => "perl", version => sprintf("%vd", $^V), pid => $$ }));
while (1) {
    while (length $buffer < 4 || length $buffer < 4 + unpack("V", $buffer)) {
        garbage("frame too long") if length $buffer >= 4 && unpack("V", $buffer) > 1 << 20;
        my $n = sysread($in, $buffer, 1 << 20, length $buffer);
        next if !defined $n && $!{EINTR}; exit 0 unless $n }
    my $frame = substr(substr($buffer, 0, 4 + unpack("V", $buffer), ""), 4);
    while (length $frame) {
        garbage("record head") if length $frame < 5;
        my ($length, $kind) = unpack("V C", substr($frame, 0, 5, ""));
        garbage("record $kind") if $length > length $frame;
        my $body = substr($frame, 0, $length, "");
        if ($kind == 1) { my $id = substr($body, 0, 16);
            $text{$id} = load(unpack("x16 C C", $body), substr($body, 24)); delete $code{$id} }
        elsif ($kind == 2) { delete $text{$body}; delete $code{$body} }
        elsif ($kind == 3) { run_call($body) }
        elsif ($kind == 4) { exit 0 }
        else { garbage("kind $kind") } } }
