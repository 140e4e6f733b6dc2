//! Large bodies stream to the journal in pieces, within their limit, and small messages overtake them.

use std::fmt::Write as _;

use stentor_harness::{Builder, Server, Smtp, TestLab, dot_stuff, message, message_with};
use stentor_lab::Mode;

const MIB: usize = 1024 * 1024;

fn large(id: &str, bytes: usize) -> Vec<u8> {
    let mut body = String::with_capacity(bytes + 80);
    let mut number = 0;
    while body.len() < bytes {
        // Each line is another, so that a piece in a wrong place would be seen.
        let _ = write!(body, "{id} {number:08} {:x<50}\r\n", "");
        number += 1;
    }
    message_with(id, "", &body)
}

fn server(lab: &TestLab, streamed_bytes_max: usize) -> Server {
    let builder: Builder = Server::builder().lab(lab).set("message_size_bytes_max", &(8 * MIB).to_string());
    builder.set("listen.streamed_bytes_max", &streamed_bytes_max.to_string()).start()
}

/// MAIL, as far as its command.
fn say_mail(client: &mut Smtp, wire: &[u8]) {
    client.raw(format!("MAIL FROM:<me@home.example> SIZE={}\r\n", wire.len()).as_bytes());
}

/// From the answer to MAIL to 354.
fn go_on(client: &mut Smtp) {
    client.reply().expect(250);
    client.cmd("RCPT TO:<ann@one.example>").expect(250);
    client.cmd("DATA").expect(354);
}

fn streamed(server: &Server, key: &str) -> usize {
    server.status()[key].as_u64().expect("a number") as usize
}

#[test]
fn large_ones_wait_for_room_and_small_ones_do_not() {
    let lab = TestLab::start_with("[[site]]\nname = \"one.example\"\n", Mode::Full);
    let server = server(&lab, 20 * MIB);
    let wires: Vec<Vec<u8>> = (0..4).map(|n| large(&format!("large{n}@test"), 6 * MIB)).collect();
    let mut clients: Vec<Smtp> = wires.iter().map(|_| server.smtp()).collect();
    for (client, wire) in clients.iter_mut().zip(&wires).take(3) {
        say_mail(client, wire);
        go_on(client);
        client.raw(&dot_stuff(wire)[..5 * MIB]);
    }
    say_mail(&mut clients[3], &wires[3]);
    for wire in &wires {
        lab.recorder().expect_message(wire.clone().into());
    }
    stentor_harness::wait_until("all of it is in the journal", || streamed(&server, "streamed_bytes") > 14 * MIB);
    // Three of 6 MiB have all the room that there is; a small one goes its way.
    server.smtp().send("me@home.example", &["ann@one.example"], &message("small@test", "small")).expect(250);
    lab.wait_clean("small@test", &["ann@one.example"]);
    for at in 0..3 {
        clients[at].raw(&dot_stuff(&wires[at])[5 * MIB..]);
        clients[at].reply().expect(250);
    }
    go_on(&mut clients[3]);
    clients[3].raw(&dot_stuff(&wires[3]));
    clients[3].reply().expect(250);
    for n in 0..4 {
        lab.wait_clean(&format!("large{n}@test"), &["ann@one.example"]);
    }
    assert_eq!(streamed(&server, "streamed_bytes"), 0);
    let peak = streamed(&server, "streamed_bytes_peak");
    assert!(peak > 14 * MIB && peak <= 20 * MIB, "{peak}");
}

#[test]
fn twenty_at_once() {
    let lab = TestLab::start_with("[[site]]\nname = \"one.example\"\n", Mode::Full);
    let server = server(&lab, 16 * MIB);
    std::thread::scope(|scope| {
        for n in 0..20 {
            let (lab, server) = (&lab, &server);
            scope.spawn(move || {
                let wire = large(&format!("large{n}@test"), 5 * MIB);
                lab.recorder().expect_message(wire.clone().into());
                let mut client = server.smtp();
                say_mail(&mut client, &wire);
                go_on(&mut client);
                client.raw(&dot_stuff(&wire));
                client.reply().expect(250);
            });
        }
        let mut client = server.smtp();
        for n in 0..50 {
            let wire = message(&format!("small{n}@test"), "small");
            client.send("me@home.example", &["ann@one.example"], &wire).expect(250);
        }
    });
    for n in 0..20 {
        lab.wait_clean(&format!("large{n}@test"), &["ann@one.example"]);
    }
    for n in 0..50 {
        lab.wait_clean(&format!("small{n}@test"), &["ann@one.example"]);
    }
    let peak = streamed(&server, "streamed_bytes_peak");
    assert!(peak > 4 * MIB && peak <= 16 * MIB, "{peak}");
}

#[test]
fn one_without_a_size_is_refused_where_there_is_no_room() {
    let lab = TestLab::sites(&["one.example"]);
    let server = server(&lab, MIB);
    let wire = large("first@test", 7 * MIB);
    let mut first = server.smtp();
    say_mail(&mut first, &wire);
    go_on(&mut first);
    // It says nothing of its size, and there is room for one message of the largest size alone.
    let mut second = server.smtp();
    let silent = large("second@test", MIB);
    second.send("me@home.example", &["ann@one.example"], &silent).expect_text("452 4.3.1");
    second.send("me@home.example", &["ann@one.example"], &message("small@test", "small")).expect(250);
    first.raw(&dot_stuff(&wire));
    first.reply().expect(250);
    second.send("me@home.example", &["ann@one.example"], &silent).expect(250);
    lab.wait_clean("second@test", &["ann@one.example"]);
}

/// Far more than other tests take meanwhile.
const FILLER_BYTES: u64 = 4 << 30;

#[test]
fn what_was_on_its_way_does_not_use_up_the_reserve() {
    let lab = TestLab::sites(&["one.example"]);
    // Half of what a filler takes away once the transactions are on their way.
    let folder = tempfile::tempdir().expect("a folder");
    let figures = rustix::fs::statvfs(folder.path()).expect("a file system");
    let free = figures.f_bavail * figures.f_frsize;
    let builder = Server::builder().lab(&lab).set("journal.reserve_bytes", &(free - FILLER_BYTES / 2).to_string());
    let server = builder.start();
    let wire = large("large@test", MIB);
    let mut streaming = server.smtp();
    say_mail(&mut streaming, &wire);
    go_on(&mut streaming);
    let mut late = server.smtp();
    late.begin("me@home.example", &["ann@one.example"]);
    server.smtp().send("me@home.example", &["ann@one.example"], &message("first@test", "first")).expect(250);
    let filler = std::fs::File::create(folder.path().join("filler")).expect("a file");
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, FILLER_BYTES).expect("space");
    stentor_harness::wait_until("MAIL is refused", || {
        server.smtp().cmd("MAIL FROM:<me@home.example>").to_string().starts_with("452 4.3.1")
    });
    streaming.raw(&dot_stuff(&wire));
    streaming.reply().expect_text("452 4.3.1");
    late.raw(&dot_stuff(&message("late@test", "late")));
    late.reply().expect_text("452 4.3.1");
    // What was accepted is delivered, and that is written.
    lab.wait_clean("first@test", &["ann@one.example"]);
    stentor_harness::wait_until("its outcome is counted", || server.status()["recipients"]["pending"] == 0);
    assert_eq!(streamed(&server, "streamed_bytes"), 0);
}
