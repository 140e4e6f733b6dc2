//! A memory limit of the control group: mail is refused temporarily before the kernel kills, nothing is lost, and mail
//! is accepted again when there is memory.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use stentor_harness::{MemoryCap, Server, TestLab, dot_stuff, message, message_with, wait_until};

use crate::kit::{SENDER, builder, closed_port, fates, wait_fates};

const CAP_BYTES: u64 = 96 << 20;
/// Together they would hold more than the cap, if each could.
const CROWD: usize = 500;
/// Just under a piece: the server keeps it in memory until more comes.
const HELD_BYTES: usize = 250 << 10;

#[track_caller]
fn start_capped(server: &mut Server, cap: &MemoryCap) {
    let command = cap.around(&server.command());
    server.start_as(command);
    server.wait_log(&["the control group limits memory"]);
}

#[test]
fn bodies_on_their_way_in_stay_within_the_cap() {
    let Some(cap) = MemoryCap::make(CAP_BYTES) else { return };
    let lab = TestLab::sites(&["one.example"]);
    let mut server = builder(&lab).prepare();
    start_capped(&mut server, &cap);
    let wire = message_with("crowd@test", "", &"a line of a message that takes room\r\n".repeat(8_000));
    lab.recorder().expect_message(wire.clone().into());
    let octets = dot_stuff(&wire);
    let (asked, holding, taken, go) =
        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let address = server.address();
    std::thread::scope(|scope| {
        for n in 0..CROWD {
            let (asked, holding, taken, go, octets) = (&asked, &holding, &taken, &go, &octets);
            scope.spawn(move || {
                let mut smtp = stentor_harness::Smtp::connect(address).greeted();
                asked.fetch_add(1, Ordering::Relaxed);
                // Slow replies are push-back too: some wait here until others are through.
                if smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).code != 250 {
                    return;
                }
                smtp.cmd(&format!("RCPT TO:<u{n}@one.example>")).expect(250);
                smtp.cmd("DATA").expect(354);
                smtp.raw(&octets[..HELD_BYTES]);
                holding.fetch_add(1, Ordering::Relaxed);
                while !go.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                smtp.raw(&octets[HELD_BYTES..]);
                let reply = smtp.reply();
                assert!(reply.code == 250 || reply.code / 100 == 4, "{reply}");
                taken.fetch_add(usize::from(reply.code == 250), Ordering::Relaxed);
            });
        }
        // A twelfth of the cap is for bodies; all the others have asked and wait or were refused.
        let at_once = CAP_BYTES as usize / 12 / (264 << 10);
        wait_until("all ask, and as many as may hold their part", || {
            asked.load(Ordering::Relaxed) == CROWD && holding.load(Ordering::Relaxed) >= at_once
        });
        assert!(holding.load(Ordering::Relaxed) <= 2 * at_once, "bodies have a share of the cap");
        go.store(true, Ordering::Relaxed);
    });
    assert!(server.is_running(), "{:?}", server.log().lines().last());
    assert_eq!(cap.killed(), 0);
    let taken = taken.into_inner() as u64;
    assert!(taken > 0);
    let fates = wait_fates(&server, "all is delivered", |fates| fates.delivered == taken);
    assert_eq!((fates.acknowledged, lab.stats().sinks.damaged), (taken, 0));
}

/// A message to 500 recipients with long ORCPT parameters, which stay in memory; the reply to its MAIL or its end.
fn post_heavy(stream: &mut stentor_harness::Smtp, n: usize) -> u16 {
    const RECIPIENTS: usize = 500;
    let mail = stream.cmd(&format!("MAIL FROM:<{SENDER}>"));
    if mail.code != 250 {
        assert!(mail.to_string().starts_with("452 4.3.1"), "{mail}");
        return mail.code;
    }
    let orcpt = "o".repeat(400);
    let rcpts: String =
        (0..RECIPIENTS).map(|k| format!("RCPT TO:<u{k}@one.example> ORCPT=rfc822;{orcpt}{n}.{k}\r\n")).collect();
    stream.raw(format!("{rcpts}DATA\r\n").as_bytes());
    for _ in 0..RECIPIENTS {
        stream.reply().expect(250);
    }
    stream.reply().expect(354);
    stream.raw(&dot_stuff(&message(&format!("heavy{n}@test"), "heavy")));
    stream.reply().code
}

#[test]
fn a_queue_that_grows_into_the_cap_is_answered_452_and_drains() {
    let Some(cap) = MemoryCap::make(CAP_BYTES) else { return };
    let lab = TestLab::sites(&["one.example"]);
    // Nothing is delivered until the route is taken away.
    let host = format!("127.0.0.1:{}", closed_port());
    let mut server = builder(&lab).route("one.example", &[&host]).prepare();
    start_capped(&mut server, &cap);
    let mut smtp = server.smtp();
    let (mut posts, mut refused) = (0, false);
    while posts < 2_000 && !refused {
        match post_heavy(&mut smtp, posts) {
            250 => posts += 1,
            452 => refused = true,
            code => panic!("{code}"),
        }
    }
    assert!(refused && server.is_running() && cap.killed() == 0, "{posts} posts of 200 KiB of parameters each");
    server.wait_log(&["memory is nearly full"]);
    assert_eq!(fates(&server).acknowledged, 500 * posts as u64);
    // A crash, and everything again from the disk, within the same cap.
    server.kill();
    start_capped(&mut server, &cap);
    assert_eq!(fates(&server).pending, 500 * posts as u64);
    server.edit_config(|text| text.lines().filter(|line| !line.contains(&host)).collect::<Vec<_>>().join("\n"));
    assert!(server.operator(&["reload"]).status.success());
    wait_fates(&server, "deliveries drain", |fates| fates.pending == 0);
    assert_eq!(fates(&server).delivered, 500 * posts as u64);
    let mut smtp = server.smtp();
    wait_until("mail is taken again", || post_heavy(&mut smtp, posts) == 250);
    assert!(server.is_running() && cap.killed() == 0);
}

/// Many connections without mail cost little: the cap holds, and mail is taken beside them.
#[test]
fn a_thousand_idle_connections_fit_into_the_cap() {
    let Some(cap) = MemoryCap::make(CAP_BYTES) else { return };
    let lab = TestLab::sites(&["one.example"]);
    let mut server = builder(&lab).prepare();
    start_capped(&mut server, &cap);
    let mut idle: Vec<TcpStream> =
        (0..1_000).map(|_| TcpStream::connect(server.address()).expect("the port is open")).collect();
    for stream in &mut idle {
        stream.write_all(b"EHLO idle.example\r\nMAIL FROM:<a@b.example> SIZE=100\r\n").expect("the server reads");
    }
    crate::kit::post(&server, &lab, &["ann@one.example"], "beside@test");
    lab.wait_clean("beside@test", &["ann@one.example"]);
    assert!(server.is_running() && cap.killed() == 0);
}
