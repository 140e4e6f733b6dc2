//! The learning half of the samples: each message and reply has the cause and the recipients of its label.
//!
//! tests/corpus/README.md says where the samples come from. The held-out half is scored by `make bench
//! ONLY=identity.bounces`.

use std::path::Path;

use stentor_bounces::message::parse;
use stentor_bounces::{BounceKind, BounceReply, BounceRules};

fn corpus(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Samples that are known to be read wrongly, and why.
const MISSES: [(&str, &str); 2] =
    [("aol_01.txt", "names a local part without its domain"), ("yale_01.txt", "names a local part without its domain")];

#[test]
fn messages_have_the_recipients_and_causes_of_their_labels() {
    let rules = BounceRules::built_in();
    let mut wrong = Vec::new();
    for line in corpus("messages.tsv").lines() {
        let [file, causes, recipients] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/messages").join(file);
        let parsed = parse(&std::fs::read(&path).unwrap(), &rules);
        let mut read: Vec<(String, &str)> =
            parsed.reports.iter().map(|report| (report.recipient.to_lowercase(), report.cause.name())).collect();
        read.sort();
        let recipients: Vec<String> = recipients.split(' ').filter(|r| *r != "-").map(str::to_lowercase).collect();
        let causes: Vec<&str> = causes.split(' ').collect();
        let mut wanted: Vec<(String, &str)> =
            recipients.into_iter().enumerate().map(|(n, r)| (r, *causes.get(n).unwrap_or(&causes[0]))).collect();
        wanted.sort();
        let is_bounce = parsed.kind == BounceKind::Bounce;
        if (read != wanted || is_bounce != (causes[0] != "-")) && !MISSES.iter().any(|(miss, _)| *miss == file) {
            let rule = parsed.reports.first().map_or("", |report| &report.rule);
            wrong.push(format!("{file}: wanted {wanted:?}, read {:?} {read:?} by {rule:?}", parsed.kind));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn replies_have_the_causes_of_their_labels() {
    let rules = BounceRules::built_in();
    let mut wrong = Vec::new();
    for line in corpus("replies.tsv").lines() {
        let [host, cause, source, text] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let found = rules.classify(&BounceReply { text, host, ..BounceReply::default() });
        if found.cause.name() != cause {
            wrong.push(format!("{source}: {text}\n  wanted {cause}, read {} by {}", found.cause, found.rule));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
