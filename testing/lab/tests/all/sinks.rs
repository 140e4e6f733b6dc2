//! Every behaviour of the sinks, over raw sockets, in every model.

use std::io;
use std::time::{Duration, Instant};

use stentor_lab::{Lab, Scenario};
use tokio::net::TcpStream;

use crate::raw::{Raw, sink};

const MESSAGE: &str = "Message-ID: <m@x>\r\n\r\nbody\r\n";

/// Each of these is a test of the lab's own tasks, and of each model that a sink by itself can have.
macro_rules! in_every_model {
    (@as $module:ident, $model:expr, $($name:ident),*) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $name() {
                    crate::raw::choose($model);
                    super::$name().await;
                }
            )*
        }
    };
    ($($name:ident),* $(,)?) => {
        in_every_model!(@as tasks, None, $($name),*);
        in_every_model!(@as event, Some(stentor_lab::Model::Event), $($name),*);
        in_every_model!(@as pool, Some(stentor_lab::Model::Pool), $($name),*);
        in_every_model!(@as thread, Some(stentor_lab::Model::Thread), $($name),*);
    };
}

in_every_model!(
    a_good_host_takes_mail_and_records_it,
    refusals_by_recipient,
    reject_share_follows_the_fate,
    greylisting_lets_the_second_attempt_through,
    limits,
    faults_at_every_stage,
    replies_after_the_data_and_kept_copies,
    dies_in_mid_data,
    fault_share_strikes_some_transactions,
    missing_extensions_and_unasked_use,
    strictness,
    round_trips_and_trickle,
    endless_reply_flows_until_the_client_goes,
    time_is_taken_over_each_command,
    a_close_loses_no_reply_to_what_was_pipelined,
    scripts_answer_in_place_of_the_host,
    scripts_end_connections,
    lmtp_answers_for_each_recipient,
);

async fn a_good_host_takes_mail_and_records_it() {
    let sink = sink("");
    let mut raw = Raw::connect(sink.address()).await;
    raw.reply().await;
    let offers = raw.ask("EHLO c.example\r\n").await;
    for offer in ["PIPELINING", "SIZE", "8BITMIME", "SMTPUTF8", "DSN", "CHUNKING", "ENHANCEDSTATUSCODES"] {
        assert!(offers.contains(offer), "{offer}");
    }
    assert_eq!(raw.deliver("bob@x.example", "Message-ID: <m@x>\r\n\r\n..dot\r\n").await, "250 2.0.0 taken");
    raw.send(
        "MAIL FROM:<> SIZE=5\r\nRCPT TO:<a@x.example>\r\nRCPT TO:<b@x.example>\r\nBDAT 2\r\na\rBDAT 3 LAST\r\n\nb\r",
    )
    .await;
    for code in ["250", "250", "250", "250"] {
        assert!(raw.reply().await.starts_with(code));
    }
    raw.send("").await;
    assert!(raw.reply().await.starts_with("250 2.0.0 taken"));
    assert_eq!(raw.ask("QUIT\r\n").await, "221 2.0.0 bye");
    assert_eq!(raw.reply().await, "closed");
    let copies = sink.recorder().copies();
    assert_eq!(copies.len(), 3);
    assert_eq!(copies[0].body.as_deref(), Some(b"Message-ID: <m@x>\r\n\r\n.dot\r\n".as_slice()));
    assert_eq!((copies[0].connection, copies[0].transaction, copies[2].transaction), (1, 1, 2));
    assert_eq!(copies[1].body.as_deref(), Some(b"a\r\nb\r".as_slice()));
    assert_eq!(sink.recorder().copies_to("b@x.example").len(), 1);
    assert_eq!(sink.recorder().violations().iter().map(|v| v.kind).collect::<Vec<_>>(), ["bare CR in data"]);
    assert!(sink.recorder().wait_for(Duration::from_secs(10), |r| r.stats().open == 0).await);
    assert_eq!(sink.recorder().stats().unanswered, 0);
    sink.stop().await;
}

async fn refusals_by_recipient() {
    let sink = sink("reject_users = ['nobody']\nfull_users = ['full']\nrecipients_per_transaction_max = 2");
    let mut raw = Raw::open(sink.address()).await;
    raw.send("MAIL FROM:<s@x>\r\nRCPT TO:<nobody@y>\r\nRCPT TO:<full@y>\r\nRCPT TO:<1@y>\r\nRCPT TO:<2@y>\r\nRCPT TO:<3@y>\r\n").await;
    for wanted in ["250 2.1.0", "550 5.1.1", "452 4.2.2", "250 2.1.5", "250 2.1.5", "452 4.5.3"] {
        let reply = raw.reply().await;
        assert!(reply.starts_with(wanted), "{reply} for {wanted}");
    }
    let stats = sink.recorder().stats();
    assert_eq!((stats.rcpt_5xx, stats.rcpt_4xx), (1, 2));
    assert!(raw.ask("RSET\r\n").await.starts_with("250"));
    raw.send("MAIL FROM:<s@x>\r\nRCPT TO:<nobody@y>\r\nDATA\r\n").await;
    raw.reply().await;
    raw.reply().await;
    assert!(raw.reply().await.starts_with("554"), "no data without recipients");
    assert_eq!(sink.recorder().stats().violations, 0);
}

async fn reject_share_follows_the_fate() {
    let text = "[[site]]\nname = 'x.example'\nbehaviour = { reject_share = 0.3 }";
    let lab = Lab::start(Scenario::parse(text).expect("valid")).await.expect("starts");
    let host = lab.scenario().sites()[0].hosts[0].address;
    let mut raw = Raw::open((host, lab.smtp_port()).into()).await;
    assert!(raw.ask("MAIL FROM:<s@x>\r\n").await.starts_with("250"));
    let mut refused = 0;
    for n in 0..100 {
        let address = format!("u{n}@x.example");
        let taken = raw.ask(&format!("RCPT TO:<{address}>\r\n")).await.starts_with("250");
        assert_eq!(taken, lab.scenario().is_reachable(&address), "{address}");
        refused += u32::from(!taken);
    }
    assert!((10..60).contains(&refused), "{refused}");
    assert!(raw.ask("RCPT TO:<u@elsewhere.example>\r\n").await.starts_with("550 5.7.1"));
    assert_eq!(lab.recorder().violations()[0].kind, "recipient of another site");
    lab.stop().await;
}

async fn greylisting_lets_the_second_attempt_through() {
    let sink = sink("greylist_ms = 50");
    let mut raw = Raw::open(sink.address()).await;
    assert!(raw.deliver("a@x", MESSAGE).await.starts_with("451 4.7.1"));
    tokio::time::sleep(Duration::from_millis(60)).await;
    raw.ask("RSET\r\n").await;
    assert!(raw.deliver("a@x", MESSAGE).await.starts_with("250"));
    assert!(raw.deliver("b@x", MESSAGE).await.starts_with("451"), "another pair");
}

async fn limits() {
    let limited = sink("messages_per_connection_max = 1");
    let mut raw = Raw::open(limited.address()).await;
    assert!(raw.deliver("a@x", MESSAGE).await.starts_with("250"));
    assert!(raw.ask("MAIL FROM:<s@x>\r\n").await.starts_with("421"));
    assert_eq!(raw.reply().await, "closed");

    let few = sink("connections_max = 1");
    let first = Raw::open(few.address()).await;
    let mut second = Raw::connect(few.address()).await;
    assert!(second.reply().await.starts_with("421"));
    drop((first, second));
    assert!(few.recorder().wait_for(Duration::from_secs(10), |r| r.stats().open == 0).await);
    Raw::open(few.address()).await;

    let slow = sink("messages_per_minute_max = 1");
    let mut raw = Raw::open(slow.address()).await;
    // Two minutes may meet between the first two, so the third decides.
    let replies =
        [raw.deliver("a@x", MESSAGE).await, raw.deliver("a@x", MESSAGE).await, raw.deliver("a@x", MESSAGE).await];
    assert!(replies.iter().any(|r| r.starts_with("450 4.7.1")), "{replies:?}");

    let small = sink("size_bytes_max = 40");
    let mut raw = Raw::open(small.address()).await;
    assert!(raw.ask("MAIL FROM:<s@x> SIZE=41\r\n").await.starts_with("552"));
    assert!(raw.deliver("a@x", &format!("{MESSAGE}{}\r\n", "y".repeat(40))).await.starts_with("552"));
    assert!(raw.deliver("a@x", MESSAGE).await.starts_with("250"));
}

async fn faults_at_every_stage() {
    for (action, outcome) in [("hang", "silent"), ("drop", "closed"), ("reset", "reset"), ("421 4.3.2 bye", "421")] {
        for stage in ["at_greeting", "at_ehlo", "at_mail", "at_rcpt", "at_data", "at_dot", "at_quit"] {
            let sink = sink(&format!("{stage} = '{action}'"));
            let mut raw = match Raw::try_connect(sink.address()).await {
                Ok(raw) => raw,
                // A sink in another thread may be faster than the call.
                Err(error) => {
                    assert_eq!((error.kind(), stage, action), (io::ErrorKind::ConnectionReset, "at_greeting", "reset"));
                    continue;
                }
            };
            let steps = [
                ("at_greeting", ""),
                ("at_ehlo", "EHLO c.example\r\n"),
                ("at_mail", "MAIL FROM:<s@x>\r\n"),
                ("at_rcpt", "RCPT TO:<r@x>\r\n"),
                ("at_data", "DATA\r\n"),
                ("at_dot", "x: y\r\n\r\n.\r\n"),
                ("at_quit", "QUIT\r\n"),
            ];
            for (at, text) in steps {
                raw.send(text).await;
                if at != stage {
                    let reply = raw.reply().await;
                    assert!(reply.starts_with(['2', '3']), "{stage} {action}: {at}: {reply}");
                    continue;
                }
                match outcome {
                    "silent" => assert!(raw.is_silent().await, "{stage} {action}"),
                    "421" => {
                        assert!(raw.reply().await.starts_with("421 4.3.2 bye"), "{stage}");
                        assert_eq!(raw.reply().await, "closed", "{stage}");
                    }
                    outcome => assert_eq!(raw.reply().await, outcome, "{stage}"),
                }
                break;
            }
            let copies = sink.recorder().stats().recipients;
            assert_eq!(copies, u64::from(stage == "at_quit"), "{stage} {action}");
            sink.stop().await;
        }
    }
}

async fn replies_after_the_data_and_kept_copies() {
    let later = sink("at_dot = '451 4.3.0 later'");
    let mut raw = Raw::open(later.address()).await;
    assert_eq!(raw.deliver("a@x", MESSAGE).await, "451 4.3.0 later");
    assert_eq!(raw.deliver("a@x", MESSAGE).await, "451 4.3.0 later", "the session goes on");
    assert_eq!((later.recorder().stats().recipients, later.recorder().stats().mail_4xx), (0, 2));

    let kept = sink("at_dot = 'drop'\ndot_keeps = true");
    let mut raw = Raw::open(kept.address()).await;
    assert_eq!(raw.deliver("a@x", MESSAGE).await, "closed");
    drop(raw);
    assert!(kept.recorder().wait_for(Duration::from_secs(10), |r| r.stats().open == 0).await);
    assert_eq!(kept.recorder().stats().recipients, 1);

    let refusing = sink("at_data = '451 4.3.0 no'");
    let mut raw = Raw::open(refusing.address()).await;
    raw.send("MAIL FROM:<s@x>\r\nRCPT TO:<a@x>\r\nBDAT 9 LAST\r\nQUIT\r\nQUI").await;
    raw.reply().await;
    raw.reply().await;
    assert_eq!(raw.reply().await, "451 4.3.0 no", "the chunk is consumed");
    assert!(raw.ask("NOOP\r\n").await.starts_with("250"));
    assert_eq!(refusing.recorder().violations().len(), 0);
}

async fn dies_in_mid_data() {
    for (action, outcome) in [("drop", "closed"), ("reset", "reset")] {
        let sink = sink(&format!("at_body = '{action}'\nbody_bytes = 100"));
        let mut raw = Raw::open(sink.address()).await;
        for line in ["MAIL FROM:<s@x>\r\n", "RCPT TO:<a@x>\r\n", "DATA\r\n"] {
            raw.ask(line).await;
        }
        raw.send(&format!("{}\r\n", "x".repeat(60))).await;
        assert!(raw.is_silent().await);
        assert_eq!(raw.ask(&format!("{}\r\n", "x".repeat(60))).await, outcome);
        assert_eq!(sink.recorder().stats().recipients, 0);
    }
}

async fn fault_share_strikes_some_transactions() {
    let sink = sink("at_dot = '451 4.3.0 later'\nfault_share = 0.5");
    let mut raw = Raw::open(sink.address()).await;
    let mut taken = 0;
    for _ in 0..40 {
        taken += u32::from(raw.deliver("a@x", MESSAGE).await.starts_with("250"));
    }
    assert!((5..35).contains(&taken), "{taken}");
}

async fn missing_extensions_and_unasked_use() {
    let bare = sink(
        "no_pipelining = true\nno_chunking = true\nno_8bitmime = true\nno_smtputf8 = true\nno_dsn = true\nno_size = true",
    );
    let mut raw = Raw::connect(bare.address()).await;
    raw.reply().await;
    assert_eq!(raw.ask("EHLO c.example\r\n").await, "250-sink.lab|250 ENHANCEDSTATUSCODES");
    for parameter in ["SIZE=1", "BODY=8BITMIME", "SMTPUTF8", "RET=HDRS"] {
        assert!(raw.ask(&format!("MAIL FROM:<s@x> {parameter}\r\n")).await.starts_with("555"), "{parameter}");
    }
    raw.ask("MAIL FROM:<s@x>\r\n").await;
    assert!(raw.ask("RCPT TO:<a@x> NOTIFY=NEVER\r\n").await.starts_with("555"));
    assert!(raw.ask("BDAT 1 LAST\r\n").await.starts_with("500"));
    assert_eq!(bare.recorder().stats().violations, 6);

    let old = sink("no_ehlo = true");
    let mut raw = Raw::connect(old.address()).await;
    raw.reply().await;
    assert!(raw.ask("EHLO c.example\r\n").await.starts_with("502"));
    assert_eq!(raw.ask("HELO c.example\r\n").await, "250 sink.lab");
    assert!(raw.deliver("a@x", MESSAGE).await.starts_with("250"));
    assert_eq!(old.recorder().stats().violations, 0);
}

async fn strictness() {
    const OPEN: &str = "MAIL FROM:<s@x>\r\nRCPT TO:<a@x>\r\n";
    for (text, kind) in [
        ("NOOP\n", "command ends without CRLF"),
        ("NO\rOP\r\n", "control character in a command"),
        ("FROB\r\n", "unknown command"),
        ("MAIL FROM: <a@x>\r\n", "path does not begin with <"),
        ("RCPT TO:<a@x>\r\n", "RCPT without MAIL"),
        ("DATA\r\n", "DATA without MAIL"),
        ("MAIL FROM:<a@x>\r\nMAIL FROM:<a@x>\r\n", "nested MAIL"),
        ("QUIT\r\nNOOP\r\n", "pipelined behind a command that ends its group"),
        ("MAIL FROM:<ä@x>\r\n", "non-ASCII sender without SMTPUTF8"),
        ("MAIL FROM:<s@x>\r\nRCPT TO:<ä@x>\r\n", "non-ASCII recipient without SMTPUTF8"),
        ("+DATA\r\nx: y\r\n", "pipelined behind a command that ends its group"),
        ("+DATA\r\n~a\nb\r\n.\r\n", "bare LF in data"),
        ("+DATA\r\n~a\rb\r\n.\r\n", "bare CR in data"),
        ("+DATA\r\n~.a\r\n.\r\n", "line begins with an undoubled dot"),
        ("+DATA\r\n~ä\r\n.\r\n", "8-bit data without BODY=8BITMIME"),
        ("+BDAT 4\r\na\r\nbXXX\r\n", "unknown command"),
        ("+BDAT 1\r\naDATA\r\n", "DATA behind BDAT"),
        ("MAIL FROM:<s@x> SIZE=2\r\nRCPT TO:<a@x>\r\nBDAT 3 LAST\r\na\r\n", "message larger than its SIZE"),
    ] {
        let sink = sink("");
        let mut raw = Raw::open(sink.address()).await;
        let text = text.replace('+', OPEN);
        let (before, after) = text.split_once('~').unwrap_or((&text, ""));
        raw.send(before).await;
        if !after.is_empty() {
            while !raw.reply().await.starts_with("354") {}
            raw.send(after).await;
        }
        let seen = |r: &stentor_lab::Recorder| r.violations().iter().any(|v| v.kind == kind);
        assert!(
            sink.recorder().wait_for(Duration::from_secs(10), seen).await,
            "{text:?}: {:?}",
            sink.recorder().violations()
        );
        sink.stop().await;
    }
    let sink = sink("no_pipelining = true");
    let mut raw = Raw::open(sink.address()).await;
    raw.send("MAIL FROM:<s@x>\r\nRCPT TO:<a@x>\r\n").await;
    raw.reply().await;
    raw.reply().await;
    assert_eq!(sink.recorder().violations()[0].kind, "pipelined unasked");
    let mut long = Raw::open(sink.address()).await;
    assert!(long.ask(&format!("NOOP {}", "x".repeat(8000))).await.starts_with("500"));
}

async fn round_trips_and_trickle() {
    let sink = sink("rtt_ms = 40\ndot_delay_ms = 30");
    let start = Instant::now();
    let mut raw = Raw::open(sink.address()).await;
    assert!(start.elapsed() >= Duration::from_millis(120), "handshake, greeting, EHLO");
    let start = Instant::now();
    raw.send("MAIL FROM:<s@x>\r\nRCPT TO:<a@x>\r\nBDAT 2 LAST\r\n\r\n").await;
    for _ in 0..3 {
        assert!(raw.reply().await.starts_with("250"));
    }
    assert!(start.elapsed() >= Duration::from_millis(70));
    // Before the 354 is due; in one write, so that no stall of this machine lets it come later.
    raw.send("MAIL FROM:<s@x>\r\nRCPT TO:<a@x>\r\nDATA\r\n\r\n.\r\n").await;
    for code in ["250", "250", "354", "250"] {
        assert!(raw.reply().await.starts_with(code));
    }
    assert_eq!(sink.recorder().stats().violations, 1);

    let slow = crate::raw::sink("trickle_ms = 2");
    let start = Instant::now();
    let mut raw = Raw::connect(slow.address()).await;
    let length = raw.reply().await.len() as u64;
    assert!(start.elapsed() >= Duration::from_millis(2 * length));
}

async fn endless_reply_flows_until_the_client_goes() {
    let sink = sink("at_mail = 'endless'");
    let mut raw = Raw::open(sink.address()).await;
    raw.send("MAIL FROM:<s@x>\r\n").await;
    let mut buffer = vec![0; 8192];
    let mut total = 0;
    while total < 50_000 {
        total += tokio::io::AsyncReadExt::read(&mut raw.stream, &mut buffer).await.expect("more");
        assert!(buffer.starts_with(b"250-") || total > 8192);
    }
    drop(raw);
    assert!(sink.recorder().wait_for(Duration::from_secs(10), |r| r.stats().open == 0).await);
}

async fn time_is_taken_over_each_command() {
    let sink = sink("reply_delay_ms = 10\nrcpt_delay_ms = 20");
    let mut raw = Raw::open(sink.address()).await;
    let start = Instant::now();
    raw.send("MAIL FROM:<s@x>\r\nRCPT TO:<a@x>\r\nRCPT TO:<b@x>\r\nNOOP\r\n").await;
    for _ in 0..4 {
        assert!(raw.reply().await.starts_with("250"));
    }
    assert!(start.elapsed() >= Duration::from_millis(4 * 10 + 2 * 20));
    let start = Instant::now();
    assert!(raw.ask("RSET\r\n").await.starts_with("250"));
    assert!(start.elapsed() >= Duration::from_millis(10));
    assert_eq!(sink.recorder().stats().violations, 0);
}

async fn a_close_loses_no_reply_to_what_was_pipelined() {
    let sink = sink("messages_per_connection_max = 1");
    let mut raw = Raw::open(sink.address()).await;
    assert!(raw.deliver("a@x", MESSAGE).await.starts_with("250"));
    // More than one read of what will never be looked at.
    let rest = "RCPT TO:<somebody@x.example>\r\n".repeat(10_000);
    let (mut read, mut write) = tokio::io::split(raw.stream);
    let sending = tokio::spawn(async move {
        let text = format!("MAIL FROM:<s@x>\r\n{rest}");
        // The sink may be gone before all is sent.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut write, text.as_bytes()).await;
    });
    let mut reply = [0; 5];
    tokio::io::AsyncReadExt::read_exact(&mut read, &mut reply).await.expect("the refusal comes");
    assert_eq!(&reply, b"421 4");
    sending.await.expect("ends");
}

#[tokio::test]
async fn connecting_goes_wrong_in_each_model() {
    for model in [stentor_lab::Model::Event, stentor_lab::Model::Pool, stentor_lab::Model::Thread] {
        crate::raw::choose(Some(model));
        let refusing = sink("connect = 'refuse'");
        let refused = TcpStream::connect(refusing.address()).await.expect_err("refused");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let silent = sink("connect = 'never_accept'");
        let hanging = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(silent.address())).await;
        assert!(hanging.is_err(), "{hanging:?}");
        let resetting = sink("connect = 'reset'");
        match Raw::try_connect(resetting.address()).await {
            Ok(mut raw) => assert_eq!(raw.reply().await, "reset"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
        for sink in [refusing, silent, resetting] {
            sink.stop().await;
        }
    }
}

#[tokio::test]
async fn a_sink_ends_with_clients_in_it() {
    for model in [stentor_lab::Model::Event, stentor_lab::Model::Pool, stentor_lab::Model::Thread] {
        crate::raw::choose(Some(model));
        let sink = sink("at_rcpt = 'hang'\nquit_delay_ms = 3600000");
        let mut clients = Vec::new();
        for text in ["", "MAIL FROM:<s@x>\r\nRCPT TO:<a@x>\r\n", "QUIT\r\n"] {
            let mut raw = Raw::open(sink.address()).await;
            raw.send(text).await;
            clients.push(raw);
        }
        assert!(sink.recorder().wait_for(Duration::from_secs(20), |r| r.stats().open == 3).await);
        let recorder = std::sync::Arc::clone(sink.recorder());
        sink.stop().await;
        assert_eq!(recorder.stats().open, 0, "{model:?}");
    }
}

#[tokio::test]
async fn connecting_goes_wrong() {
    let text = "
[[site]]\nname = 'refuse.example'\nbehaviour = { connect = 'refuse' }
[[site]]\nname = 'never.example'\nbehaviour = { connect = 'never_accept' }
[[site]]\nname = 'reset.example'\nbehaviour = { connect = 'reset' }";
    let lab = Lab::start(Scenario::parse(text).expect("valid")).await.expect("starts");
    let address = |site: usize| (lab.scenario().sites()[site].hosts[0].address, lab.smtp_port());
    let refused = TcpStream::connect(address(0)).await.expect_err("refused");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let hanging = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address(1))).await;
    assert!(hanging.is_err(), "{hanging:?}");
    let mut reset = Raw::connect(address(2).into()).await;
    assert_eq!(reset.reply().await, "reset");
    lab.stop().await;
}

#[tokio::test]
async fn an_outage_begins_and_ends() {
    let text = "
[[site]]\nname = 'x.example'
[[site.window]]\nfrom_s = 2\nto_s = 4\nbehaviour = { connect = 'refuse' }
[[site.window]]\nfrom_s = 4\nto_s = 8\nbehaviour = { at_mail = '451 4.3.0 warming up' }";
    let lab = Lab::start(Scenario::parse(text).expect("valid")).await.expect("starts");
    let address = (lab.scenario().sites()[0].hosts[0].address, lab.smtp_port()).into();
    let mut early = Raw::open(address).await;
    assert!(early.ask("NOOP\r\n").await.starts_with("250"));
    assert!(["closed", "reset"].contains(&early.reply().await.as_str()), "the outage cuts connections");
    assert!(TcpStream::connect(address).await.is_err());
    let mut raw = loop {
        match TcpStream::connect(address).await {
            Ok(_) => break Raw::open(address).await,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let mut replies = Vec::new();
    loop {
        let reply = raw.deliver("a@x.example", MESSAGE).await;
        replies.push(reply.clone());
        if reply.starts_with("250") {
            break;
        }
        assert!(reply.starts_with("451"), "{reply}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(lab.recorder().stats().violations, 0);
    lab.stop().await;
}

async fn scripts_answer_in_place_of_the_host() {
    let sink = sink(
        "script = ['greeting: ok; say 220 twice', 'rcpt (<bob@): say 450-a\\r\\n550 b', 'mail (SIZE=): mute', \
         'bdat: spill; say 500 what', 'dot: say 354 what', 'rset: say 451 no']",
    );
    let mut raw = Raw::connect(sink.address()).await;
    for start in ["220 sink.lab", "220 twice"] {
        assert!(raw.reply().await.starts_with(start));
    }
    assert!(raw.ask("EHLO c.example\r\n").await.starts_with("250-"));
    assert_eq!(raw.ask("MAIL FROM:<s@x> SIZE=9\r\nRCPT TO:<bob@x>\r\n").await, "450-a|550 b");
    assert_eq!(raw.ask("RCPT TO:<ann@x>\r\n").await, "250 2.1.5 ok");
    assert_eq!(raw.ask("BDAT 6 LAST\r\nHELLO\n").await, "500 what");
    assert_eq!(raw.reply().await, "500 5.5.1 unknown command");
    assert!(raw.ask("DATA\r\n").await.starts_with("354"));
    assert_eq!(raw.ask("x: y\r\n\r\n.\r\n").await, "354 what");
    assert_eq!(raw.ask("RSET\r\n").await, "451 no");
    assert_eq!(sink.recorder().stats().recipients, 0);
    sink.stop().await;
}

async fn scripts_end_connections() {
    for (steps, outcome) in [("close", "closed"), ("reset", "reset"), ("half-close", "closed"), ("hang", "silent")] {
        let sink = sink(&format!("script = ['dot: mute; {steps}']"));
        let mut raw = Raw::open(sink.address()).await;
        raw.send("MAIL FROM:<s@x>\r\nRCPT TO:<ann@x>\r\nDATA\r\n").await;
        for start in ["250", "250", "354"] {
            assert!(raw.reply().await.starts_with(start));
        }
        raw.send("x: y\r\n\r\n.\r\n").await;
        match outcome {
            "silent" => assert!(raw.is_silent().await),
            outcome => assert_eq!(raw.reply().await, outcome),
        }
        assert_eq!(sink.recorder().stats().recipients, 1, "kept: {steps}");
        drop(raw);
        sink.stop().await;
    }
    let sink = sink("script = ['ehlo: flood line', 'mail: flood lines', 'greeting: drip; ok']");
    let mut raw = Raw::connect(sink.address()).await;
    assert!(raw.is_silent().await, "an octet a second");
    drop(raw);
    sink.stop().await;
}

async fn lmtp_answers_for_each_recipient() {
    let sink = sink("lmtp = true\nscript = ['dot (bob@): say 451 4.2.0 later']");
    let mut raw = Raw::connect(sink.address()).await;
    assert!(raw.reply().await.contains("LMTP"));
    assert!(raw.ask("EHLO c.example\r\n").await.starts_with("500"));
    assert!(raw.ask("LHLO c.example\r\n").await.starts_with("250-"));
    raw.send("MAIL FROM:<s@x>\r\nRCPT TO:<ann@x>\r\nRCPT TO:<bob@x>\r\nDATA\r\n").await;
    for start in ["250", "250", "250", "354"] {
        assert!(raw.reply().await.starts_with(start));
    }
    assert_eq!(raw.ask("x: y\r\n\r\n.\r\n").await, "250 2.1.5 taken");
    assert_eq!(raw.reply().await, "451 4.2.0 later");
    let copies = sink.recorder().copies();
    assert_eq!(copies.iter().map(|copy| &*copy.recipient).collect::<Vec<_>>(), ["ann@x"]);
    sink.stop().await;
}
