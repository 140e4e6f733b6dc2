//! The source against the lab's sinks.

use stentor_lab::{Behaviour, Lab, Mode, Scenario, SinkOnly};
use stentor_load::load::Tls;
use stentor_load::{Source, SourceReport};

fn sink(behaviour: &str) -> SinkOnly {
    let behaviour = Behaviour::parse(behaviour).expect("valid behaviour");
    SinkOnly::start(([127, 0, 0, 1], 0).into(), behaviour, Mode::Bodies).expect("starts")
}
#[tokio::test]
async fn the_source_delivers_everything() {
    for (keep_open, pipelining) in [(true, true), (false, true), (true, false)] {
        let sink = SinkOnly::start(([127, 0, 0, 1], 0).into(), Behaviour::default(), Mode::Full).expect("starts");
        let mut source = Source::new(sink.address());
        (source.messages, source.connections, source.keep_open, source.pipelining) = (50, 4, keep_open, pipelining);
        source.recipients = (0..7).map(|n| format!("r{n}@x.example")).collect();
        source.recipients_per_message = 3;
        let original = source.message(49);
        sink.recorder().expect_message(original.into());
        let report = source.clone().run().await.expect("runs");
        assert_eq!((report.accepted, report.recipients), (50, 150), "{:?}", report.errors);
        assert_eq!(report.final_ns.count(), 50);
        let stats = sink.recorder().stats();
        assert_eq!((stats.transactions, stats.recipients, stats.intact, stats.violations), (50, 150, 3, 0));
        assert_eq!(stats.connections, if keep_open { 4 } else { 50 });
        assert_eq!(sink.recorder().message_ids().len(), 50);
    }
}

#[tokio::test]
async fn the_source_reports_refusals() {
    let sink = sink("reject_users = ['bad']\nat_dot = '451 4.3.0 later'\nfault_share = 0.5");
    let mut source = Source::new(sink.address());
    source.messages = 40;
    source.recipients = vec!["bad@x".to_owned(), "good@x".to_owned()];
    source.recipients_per_message = 2;
    let report = source.run().await.expect("runs");
    assert_eq!(report.errors.get("550 RCPT"), Some(&40));
    let later = report.errors.get("451 end of data").copied().unwrap_or(0);
    assert!(later > 0 && report.accepted > 0);
    assert_eq!(later + report.accepted, 40);
    let mut source = Source::new(([127, 0, 0, 1], 1).into());
    source.messages = 3;
    assert_eq!(source.run().await.expect("runs").errors.get("connect: connection refused"), Some(&3));
}

/// A source to the only host of a lab, which behaves so.
async fn encrypted(behaviour: &str, tls: Tls) -> SourceReport {
    let scenario = format!("[[site]]\nname = 'sink.example'\nbehaviour = {{ {behaviour} }}\n");
    let lab = Lab::start_with(Scenario::parse(&scenario).expect("valid scenario"), Mode::Full).await.expect("starts");
    let mut source = Source::new((lab.scenario().sites()[0].hosts[0].address, lab.smtp_port()).into());
    (source.messages, source.connections, source.keep_open, source.tls) = (20, 4, false, tls);
    // More than a record, and more than rustls keeps for a socket that is full.
    source.size_bytes = 200_000;
    source.recipients = vec!["r@sink.example".to_owned()];
    let original = source.message(19);
    lab.recorder().expect_message(original.into());
    let report = source.run().await.expect("runs");
    let stats = lab.recorder().stats();
    assert_eq!((stats.recipients, stats.violations), (report.accepted, 0));
    assert_eq!(stats.intact, u64::from(report.accepted > 0));
    lab.stop().await;
    report
}

#[tokio::test]
async fn the_source_encrypts() {
    for (behaviour, tls) in [
        ("tls = 'good', tls_required = true", Tls::Starttls),
        ("tls = 'self_signed', tls_implicit = true", Tls::Implicit),
    ] {
        let report = encrypted(behaviour, tls).await;
        assert_eq!((report.accepted, report.errors.len()), (20, 0), "{:?}", report.errors);
    }
}

#[tokio::test]
async fn a_source_that_cannot_encrypt_sends_nothing() {
    for (behaviour, error) in [
        ("no_size = true", "STARTTLS: not offered"),
        ("tls = 'good', at_starttls = '454 4.7.0 later'", "454 STARTTLS"),
        ("tls = 'inject'", "STARTTLS: unencrypted octets after it"),
        ("tls = 'eof'", "TLS handshake: closed"),
    ] {
        let report = encrypted(behaviour, Tls::Starttls).await;
        assert_eq!((report.accepted, report.errors.get(error)), (0, Some(&20)), "{behaviour}: {:?}", report.errors);
    }
}
