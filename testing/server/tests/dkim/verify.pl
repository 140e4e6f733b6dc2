# Verifies messages with Mail::DKIM, as verify.py does: a line for each signature.
use strict;
use warnings;
use Mail::DKIM::DNS;
use Mail::DKIM::Verifier;
use Net::DNS;

# Answers from the records instead of from DNS.
package Records {
    sub new { my ($class, $path) = @_; open(my $in, '<', $path) or die "$path: $!"; local $/; my $text = <$in>;
        my %found;
        for my $line (split /\n/, $text) {
            my ($name, $strings) = $line =~ /^(\S+)\. IN TXT (.*)$/ or next;
            $found{lc $name} = join '', $strings =~ /"([^"]*)"/g;
        }
        return bless { found => \%found }, $class;
    }
    sub send {
        my ($self, $name, $type) = @_;
        my $packet = Net::DNS::Packet->new($name, $type);
        $packet->header->qr(1);
        my $text = $self->{found}{lc $name};
        if (defined $text && $type eq 'TXT') {
            my @strings = unpack '(A255)*', $text;
            $packet->push(answer => Net::DNS::RR->new(name => $name, type => 'TXT', txtdata => \@strings));
        }
        return $packet;
    }
    sub errorstring { return 'NOERROR' }
}

package main;

my $records = Records->new(shift);
Mail::DKIM::DNS::resolver($records);
for my $path (@ARGV) {
    open(my $in, '<:raw', $path) or die "$path: $!";
    my $verifier = Mail::DKIM::Verifier->new;
    while (my $line = <$in>) {
        $verifier->PRINT($line);
    }
    $verifier->CLOSE;
    for my $signature ($verifier->signatures) {
        printf "%s %s %s %s\n", $path, $signature->domain, $signature->algorithm, $signature->result_detail;
    }
}
