//! RCPT call-ahead over real sockets: what the next hop of a relay domain is asked, how often, and what clients hear.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stentor_harness::{Server, message, wait_until};

use crate::kit::{bare, closed_address};
use crate::virtual_users::with;

/// What it says to a command; `None`: what a host says that takes everything.
type ReplyScript = dyn Fn(&str) -> Option<String> + Send + Sync;

/// A mail host behind the server, that writes down what it is told.
struct Host {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
    /// Connections whose client has not said QUIT.
    open: Arc<AtomicUsize>,
    open_max: Arc<AtomicUsize>,
}

impl Host {
    fn start(says: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Host {
        Host::on("127.0.0.1:0", says)
    }

    fn on(address: &str, says: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Host {
        let listener = TcpListener::bind(address).expect("the port is free");
        let says: Arc<ReplyScript> = Arc::new(says);
        let host = Host {
            address: listener.local_addr().expect("it is bound"),
            heard: Arc::default(),
            open: Arc::default(),
            open_max: Arc::default(),
        };
        let (heard, open, open_max) = (host.heard.clone(), host.open.clone(), host.open_max.clone());
        // Ends with the process: nobody is left to connect.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (heard, open, says) = (heard.clone(), open.clone(), says.clone());
                open_max.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    let _ = serve(&stream, &heard, &*says, &open);
                });
            }
        });
        host
    }

    /// A server that relays for inner.example to this host.
    fn relay(&self, more: &str) -> Server {
        relay(&self.address.to_string(), more)
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().expect("no test panics there").clone()
    }

    /// How often each recipient was named.
    fn asked(&self) -> BTreeMap<String, usize> {
        let mut asked = BTreeMap::new();
        for line in self.heard() {
            if let Some(address) = line.strip_prefix("RCPT TO:") {
                *asked.entry(address.trim_matches(['<', '>']).to_owned()).or_default() += 1;
            }
        }
        asked
    }
}

fn serve(
    stream: &TcpStream,
    heard: &Mutex<Vec<String>>,
    says: &ReplyScript,
    open: &AtomicUsize,
) -> std::io::Result<()> {
    let (mut reader, mut out, mut is_data) = (BufReader::new(stream), stream, false);
    out.write_all(says("connect").unwrap_or_else(|| "220 inner ESMTP".to_owned()).as_bytes())?;
    out.write_all(b"\r\n")?;
    let mut line = String::new();
    while {
        line.clear();
        reader.read_line(&mut line)?
    } > 0
    {
        let command = line.trim_end().to_owned();
        if is_data {
            if command == "." {
                is_data = false;
                out.write_all(b"250 2.0.0 taken\r\n")?;
            }
            continue;
        }
        heard.lock().expect("no test panics there").push(command.clone());
        is_data = command == "DATA";
        if command == "QUIT" {
            open.fetch_sub(1, Ordering::SeqCst);
        }
        let usual = match &command[..4] {
            "EHLO" | "LHLO" => "250-inner\r\n250-PIPELINING\r\n250 ENHANCEDSTATUSCODES",
            "DATA" => "354 go on",
            "QUIT" => "221 2.0.0 bye",
            _ => "250 2.0.0 fine",
        };
        let reply = says(&command).unwrap_or_else(|| usual.to_owned());
        out.write_all(reply.as_bytes())?;
        out.write_all(b"\r\n")?;
    }
    Ok(())
}

/// Users whose names begin with `no` do not exist.
fn knows(command: &str) -> Option<String> {
    command.starts_with("RCPT TO:<no").then(|| "550 5.1.1 User unknown in virtual mailbox table".to_owned())
}

fn relay(route: &str, more: &str) -> Server {
    let server = bare().prepare();
    server.edit_config(|text| {
        format!(
            "{text}\n[domains]\nrelay = [\"inner.example\"]\n[routes]\n\"inner.example\" = \"{route}\"\n\
             [call_ahead]\ndomains = \"all\"\n{more}"
        )
    });
    server.run()
}

/// What a client from outside hears about a recipient.
fn rcpt(server: &Server, to: &str) -> String {
    let mut client = server.connect_from("127.0.0.2").greeted();
    client.cmd("MAIL FROM:<joe@elsewhere.example>").expect(250);
    let reply = client.cmd(&format!("RCPT TO:<{to}>"));
    client.cmd("QUIT").expect(221);
    format!("{} {}", reply.code, reply.lines.join("\n"))
}

fn text(output: std::process::Output) -> String {
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn recipients_are_asked_for_once_and_mail_for_those_who_exist_is_delivered() {
    let host = Host::start(knows);
    let server = host.relay("");
    for _ in 0..2 {
        assert_eq!(
            rcpt(&server, "nobody@inner.example"),
            "550 5.1.1 The recipient's mail server refused it: 550 5.1.1 User unknown in virtual mailbox table"
        );
        assert!(rcpt(&server, "Ann@inner.example").starts_with("250 2.1.5"));
    }
    // The case does not matter, and content is never announced.
    assert!(rcpt(&server, "NOBODY@inner.example").starts_with("550 5.1.1"));
    assert_eq!(host.asked(), BTreeMap::from([("Ann@inner.example".into(), 1), ("nobody@inner.example".into(), 1)]));
    let heard = host.heard();
    assert!(heard.contains(&"MAIL FROM:<>".to_owned()) && !heard.contains(&"DATA".to_owned()), "{heard:?}");
    server.log().wait_nth(
        &[
            "ruleset=check_rcpt",
            "arg1=<nobody@inner.example>",
            "policy=call-ahead: 127.0.0.1",
            "User unknown in virtual",
        ],
        2,
    );

    let mut stranger = server.connect_from("127.0.0.2").greeted();
    stranger.send("joe@elsewhere.example", &["Ann@inner.example"], &message("1@test", "For Ann")).expect(250);
    server.wait_empty();
    // Trusted clients are not asked about: they hear of it by a bounce.
    server.smtp().send("ann@elsewhere.example", &["none@inner.example"], &message("2@test", "Whom?")).expect(250);
    wait_until("the delivery asks itself", || host.asked().contains_key("none@inner.example"));
}

#[test]
fn rules_that_accept_a_recipient_know_better() {
    let host = Host::start(knows);
    let server = host.relay("[[rules]]\nrecipient = \"nora@inner.example\"\ndo = \"ok\"\n");
    assert!(rcpt(&server, "nora@inner.example").starts_with("250"));
    assert!(rcpt(&server, "norbert@inner.example").starts_with("550 5.1.1"));
    assert_eq!(host.asked().into_keys().collect::<Vec<_>>(), ["norbert@inner.example"]);
}

#[test]
fn a_host_that_cannot_be_reached_defers_or_accepts_and_is_left_alone_for_a_time() {
    let address = closed_address().to_string();
    let server = relay(&address, "failure_ttl_s = 0.5e1\n");
    let reply = "450 4.1.1 The recipient could not be verified: its mail server is unreachable";
    assert_eq!(rcpt(&server, "ann@inner.example"), reply);
    // Nobody at this site is asked for, not even about others.
    assert_eq!(rcpt(&server, "bob@inner.example"), reply);
    server.wait_log(&["call-ahead failed", &address, "Connection refused"]);
    // A reload forgets it.
    let host = Host::on(&address, knows);
    assert!(server.operator(&["reload"]).status.success());
    assert!(rcpt(&server, "ann@inner.example").starts_with("250"));
    drop(server);
    assert_eq!(host.asked().len(), 1);

    let server = relay("127.0.0.1:1", "on_failure = \"accept\"\n");
    assert!(rcpt(&server, "ann@inner.example").starts_with("250"));
}

#[test]
fn what_is_no_answer_about_the_recipient_defers() {
    let tries = AtomicUsize::new(0);
    let host = Host::start(move |command| match command {
        "RCPT TO:<grey@inner.example>" if tries.fetch_add(1, Ordering::SeqCst) == 0 => {
            Some("451 4.7.1 Greylisted, come back".to_owned())
        }
        "RCPT TO:<policy@inner.example>" => Some("554 5.7.1 Relay access denied".to_owned()),
        "RCPT TO:<full@inner.example>" => Some("552 5.2.2 Mailbox full".to_owned()),
        "RCPT TO:<moved@inner.example>" => Some("551 5.1.6 He has moved".to_owned()),
        _ => None,
    });
    let server = host.relay("failure_ttl_s = 1\n");
    assert_eq!(
        rcpt(&server, "grey@inner.example"),
        "450 4.1.1 The recipient could not be verified: 451 4.7.1 Greylisted, come back"
    );
    assert!(rcpt(&server, "policy@inner.example").starts_with("450 4.1.1"));
    assert!(rcpt(&server, "full@inner.example").starts_with("450 4.1.1"));
    assert!(rcpt(&server, "moved@inner.example").starts_with("551 5.1.6"));
    wait_until("it is asked for again", || rcpt(&server, "grey@inner.example").starts_with("250"));
    assert_eq!(host.asked()["grey@inner.example"], 2);
}

#[test]
fn a_host_that_refuses_the_null_sender_is_not_asked_again_and_another_sender_helps() {
    let refuses = |command: &str| (command == "MAIL FROM:<>").then(|| "550 5.7.1 No bounces".to_owned());
    let host = Host::start(refuses);
    let server = host.relay("");
    for to in ["ann@inner.example", "bob@inner.example"] {
        let reply = rcpt(&server, to);
        assert_eq!(reply, "450 4.1.1 The recipient could not be verified: its mail server does not answer the check");
    }
    assert_eq!(host.heard().iter().filter(|line| line.starts_with("MAIL")).count(), 1);
    server.wait_log(&["call-ahead failed", "550 5.7.1 No bounces to MAIL"]);
    let server = host.relay("sender = \"verify@gate.example\"\n");
    assert!(rcpt(&server, "ann@inner.example").starts_with("250"));
}

#[test]
fn guessed_addresses_are_no_flood_at_the_host_and_nobody_else_waits() {
    let host = Host::start(|command| {
        if command.starts_with("RCPT") {
            std::thread::sleep(Duration::from_millis(5));
        }
        knows(command)
    });
    let server = host.relay("connections_per_site_max = 2\nquestions_per_second_max = 1000\n");
    std::thread::scope(|scope| {
        for client in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for n in 0..15 {
                    // Every other address is one that all guess.
                    let who = if n % 2 == 0 { format!("no{n}") } else { format!("no{client}.{n}") };
                    assert!(rcpt(server, &format!("{who}@inner.example")).starts_with("550 5.1.1"));
                }
            });
        }
    });
    let asked = host.asked();
    assert_eq!((asked.len(), asked.values().max()), (8 + 8 * 7, Some(&1)));
    assert!(host.open_max.load(Ordering::SeqCst) <= 2, "connections at a time");
    // No connection lasts until a host would slow it down for its errors.
    let connections = host.heard().iter().filter(|line| line.starts_with("EHLO")).count();
    assert!(connections >= asked.len() / 8, "{connections} connections");
}

#[test]
fn a_silent_host_defers_in_time_and_keeps_nobody_else_waiting() {
    let host = Host::start(|command| {
        if command.starts_with("RCPT") {
            std::thread::sleep(Duration::from_secs(20));
        }
        None
    });
    let server = host.relay("timeout_s = 5\n");
    let mut waiting = server.connect_from("127.0.0.2").greeted();
    waiting.cmd("MAIL FROM:<joe@elsewhere.example>").expect(250);
    waiting.raw(b"RCPT TO:<ann@inner.example>\r\n");
    wait_until("the host is asked", || !host.asked().is_empty());
    // The same session threads serve others meanwhile.
    assert!(rcpt(&server, "x@nowhere.example").starts_with("550 5.7.1 Relaying denied"));
    assert_eq!(waiting.reply().code, 450);
}

#[test]
fn a_recipient_that_the_host_is_slow_about_concerns_nobody_else() {
    let host = Host::start(|command| {
        if command.starts_with("RCPT TO:<slow") {
            std::thread::sleep(Duration::from_secs(20));
        }
        knows(command)
    });
    let server = host.relay("timeout_s = 5\n");
    let reply = "450 4.1.1 The recipient could not be verified: no answer within 5 s";
    assert_eq!(rcpt(&server, "slow@inner.example"), reply);
    assert!(rcpt(&server, "ann@inner.example").starts_with("250"));
    assert!(rcpt(&server, "nobody@inner.example").starts_with("550 5.1.1"));
}

/// More relay hosts that never greet than there are connections for questions, asked for at the same time.
#[test]
fn hosts_that_are_dead_keep_no_domain_that_answers_waiting() {
    const DEAD: usize = 40;
    let (host, dead) = (Host::start(knows), TcpListener::bind("0.0.0.0:0").expect("a port is free"));
    let port = dead.local_addr().expect("it is bound").port();
    let server = bare().prepare();
    server.edit_config(|text| {
        let route = |n| format!("\"dead{n}.example\" = \"127.1.0.{n}:{port}\"\n");
        let relay: String = (1..=DEAD).map(|n| format!(", \"dead{n}.example\"")).collect();
        format!(
            "{text}\n[domains]\nrelay = [\"inner.example\"{relay}]\n[routes]\n\
             \"inner.example\" = \"{}\"\n{}[call_ahead]\ndomains = \"all\"\ntimeout_s = 10\n",
            host.address,
            (1..=DEAD).map(route).collect::<String>(),
        )
    });
    let server = server.run();
    assert!(rcpt(&server, "ann@inner.example").starts_with("250"));
    // It takes a new connection to ask for the next one.
    wait_until("the connection is given up", || host.open.load(Ordering::SeqCst) == 0);
    let waiting: Vec<_> = (1..=DEAD)
        .map(|n| {
            let mut client = server.connect_from("127.0.0.2").greeted();
            client.cmd("MAIL FROM:<joe@elsewhere.example>").expect(250);
            client.raw(format!("RCPT TO:<ann@dead{n}.example>\r\n").as_bytes());
            client
        })
        .collect();
    // As many as may be asked at once hold their connections for 15 s, longer than a question has.
    dead.set_nonblocking(true).expect("a socket can");
    let mut held = Vec::new();
    wait_until("the dead hosts are asked", || {
        held.extend(dead.accept());
        held.len() >= 16
    });
    // The others of them are asked for before what comes now.
    for _ in 0..DEAD {
        assert!(rcpt(&server, "x@nowhere.example").starts_with("550 5.7.1"));
    }
    assert!(rcpt(&server, "bob@inner.example").starts_with("250"));
    drop((waiting, held));
}

#[test]
fn a_host_that_closes_at_a_recipient_is_asked_for_others() {
    let host = Host::start(|command| match command {
        "RCPT TO:<odd@inner.example>" => Some("421 4.3.0 I do not like this one".to_owned()),
        _ => knows(command),
    });
    let server = host.relay("");
    assert!(rcpt(&server, "odd@inner.example").starts_with("450 4.1.1"));
    assert!(rcpt(&server, "ann@inner.example").starts_with("250"));
}

#[test]
fn a_session_has_time_to_open_whatever_time_a_question_has() {
    let host = Host::start(|command| {
        if command == "connect" {
            std::thread::sleep(Duration::from_secs(4));
        }
        knows(command)
    });
    let server = host.relay("timeout_s = 1\n");
    let mut n = 0;
    wait_until("the session is open", || {
        n += 1;
        let reply = rcpt(&server, &format!("ann{n}@inner.example"));
        assert!(!reply.contains("reached"), "{reply}");
        reply.starts_with("250")
    });
    assert!(n > 1, "the first question had no time to wait");
}

#[test]
fn hosts_of_a_route_are_asked_in_turn_and_by_lmtp() {
    let host = Host::start(knows);
    let server = bare().prepare();
    server.edit_config(|text| {
        format!(
            "{text}\n[domains]\nrelay = [\"inner.example\", \"plain.example\"]\n\
             [routes]\n\"inner.example\" = [\"lmtp:127.0.0.1:1\", \"lmtp:{0}\"]\n\"plain.example\" = \"{0}\"\n\
             [call_ahead]\ndomains = [\"inner.example\"]\n",
            host.address
        )
    });
    let server = server.run();
    assert!(rcpt(&server, "nobody@inner.example").starts_with("550 5.1.1"));
    assert!(host.heard()[0].starts_with("LHLO "), "{:?}", host.heard());
    // Not one of the domains that are asked for.
    assert!(rcpt(&server, "nobody@plain.example").starts_with("250"));
}

#[test]
fn a_host_is_asked_about_the_address_that_it_will_get() {
    let host = Host::start(|command| match command {
        "RCPT TO:<ann.lee@inner.example>" => None,
        _ => command.starts_with("RCPT").then(|| "550 5.1.1 User unknown".to_owned()),
    });
    let route = format!("[routes]\n\"inner.example\" = \"{0}\"\n\"store.example\" = \"lmtp:{0}\"\n", host.address);
    let server = with(
        bare(),
        &[("generic", "ann@inner.example ann.lee@inner.example\nann@store.example ann.lee@inner.example\n")],
        &format!(
            "[tables.outside]\nsource = \"hash:{{}}/generic\"\nas = \"generic\"\n[addresses]\ngeneric = \"outside\"\n\
             [domains]\nrelay = [\"inner.example\", \"store.example\"]\n{route}[call_ahead]\ndomains = \"all\"\n"
        ),
    );
    assert!(rcpt(&server, "ann@inner.example").starts_with("250"));
    assert!(rcpt(&server, "ann.lee@inner.example").starts_with("250"));
    // What goes by LMTP is as it is stored.
    assert!(rcpt(&server, "ann@store.example").starts_with("550 5.1.1"));
    let asked = [("ann.lee@inner.example".into(), 1), ("ann@store.example".into(), 1)];
    assert_eq!(host.asked(), BTreeMap::from(asked));
    let arguments = ["explain", "--from", "joe@x.example", "--to", "ann@inner.example", "--client", "192.0.2.7"];
    let explained = text(server.operator(&[&arguments[..], &["--call-ahead"]].concat()));
    assert!(explained.contains("the next hop accepts the recipient"), "{explained}");
}

#[test]
fn a_generic_table_that_fails_defers() {
    let host = Host::start(knows);
    let closed = closed_address();
    let server = host.relay(&format!(
        "[tables.remote]\nsource = \"socketmap:inet:{closed}:out\"\nas = \"generic\"\n[addresses]\ngeneric = \"remote\"\n"
    ));
    assert!(rcpt(&server, "ann@inner.example").starts_with("450 4.1.1"));
    assert!(host.asked().is_empty());
}

#[test]
fn explain_asks_if_it_is_told_to() {
    let host = Host::start(knows);
    let server = host.relay("");
    let explain = |to: &str, more: &[&str]| {
        let to = format!("{to}@inner.example");
        let arguments = ["explain", "--from", "joe@x.example", "--to", &to, "--client", "192.0.2.7"];
        text(server.operator(&[&arguments[..], more].concat()))
    };
    assert!(explain("nobody", &[]).contains("if the next hop accepts the recipient"));
    assert!(host.asked().is_empty());
    let asked = explain("nobody", &["--call-ahead"]);
    assert!(
        asked.contains("call-ahead: refused: 127.0.0.1") && asked.contains("said 550 5.1.1 User unknown"),
        "{asked}"
    );
    assert!(asked.contains("=> refused: 550 5.1.1 The recipient's mail server refused it"), "{asked}");
    assert!(explain("ann", &["--call-ahead"]).contains("call-ahead: the next hop accepts the recipient"));
}

#[test]
fn domains_that_are_not_relayed_for_are_an_error() {
    let server = bare().prepare();
    server.edit_config(|text| {
        format!(
            "{text}\n[domains]\nrelay = [\".a.example\"]\n[call_ahead]\ndomains = [\"x.a.example\", \"b.example\"]\n"
        )
    });
    let output = server.operator(&["check"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("\"b.example\" is not one of the `relay` domains of [domains]")
            && !said.contains("x.a.example\" is"),
        "{said}"
    );
}
