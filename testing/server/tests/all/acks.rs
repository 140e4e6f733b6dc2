//! Acknowledgements of TCP: a client that writes a message in pieces without `TCP_NODELAY`, such as mlmmj, must not
//! wait for the kernel's delayed one; a client that writes whole commands and messages costs no system call for that.

use stentor_harness::wait_until;

use crate::kit::{bare, drained};

#[test]
fn pieces_of_a_message_are_acknowledged_at_once() {
    let host = crate::copies::host();
    let mut server = bare().route("host.example", &[&host.host()]).prepare();
    let trace = server.path("strace.log");
    let path = trace.to_str().expect("a plain path").to_owned();
    let command = server.behind(&["strace", "-D", "-f", "-qq", "-o", &path, "-e", "trace=setsockopt"]);
    server.start_as(command);
    let acks = || {
        let text = std::fs::read_to_string(&trace).unwrap_or_default();
        text.lines().filter(|line| line.contains("TCP_QUICKACK, [1]")).count()
    };
    let mut client = server.smtp();
    for n in 1..=2 {
        client.begin("ed@home.test", &["ann@host.example"]);
        client.raw(b"Subject: pieces\r\n");
        // It is the kernel's from here on, until we reply.
        wait_until("the first piece is acknowledged", || acks() == n);
        client.raw(b"\r\nx\r\n");
        client.raw(b".\r\n");
        client.reply().expect(250);
    }
    client.raw(b"NO");
    wait_until("half a command is acknowledged", || acks() == 3);
    client.raw(b"OP\r\n");
    client.reply().expect(250);
    for _ in 0..5 {
        client.send("ed@home.test", &["ann@host.example"], b"Subject: whole\r\n\r\nx\r\n").expect(250);
        client.raw(b"MAIL FROM:<ed@home.test>\r\nRCPT TO:<ann@host.example>\r\nRSET\r\nNOOP\r\n");
        for _ in 0..4 {
            client.reply().expect(250);
        }
    }
    client.quit();
    assert_eq!(drained(&server).delivered, 7);
    assert_eq!(acks(), 3);
}
