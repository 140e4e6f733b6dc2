//! Tests of content conditions on messages.

use std::sync::Arc;

use proptest::prelude::*;

use super::{ContentConditionError, ContentConditions, ContentScanner, Hits, Matcher, Pattern, Test};

fn rule(key: &'static str, tests: Vec<Test>) -> ContentConditions {
    let mut conditions = ContentConditions::default();
    conditions.add(key, tests);
    conditions
}

fn hits(rules: &mut [ContentConditions], message: &[u8], cut: usize) -> Hits {
    let matcher = Arc::new(Matcher::new(rules.iter_mut()).unwrap());
    let mut scan = ContentScanner::new(matcher, 0, true);
    message.chunks(cut).for_each(|piece| scan.push(piece));
    scan.finish()
}

/// Whether a message matches the test.
fn is_met(test: Test, message: &str) -> bool {
    let mut rules = [rule("test", vec![test])];
    let hits = hits(&mut rules, message.as_bytes(), 1_000);
    rules[0].failing(&hits).is_none()
}

fn charset(name: &str) -> Test {
    Test::Charset(Pattern::name(name).unwrap())
}

#[test]
fn header_fields_as_they_came_and_decoded() {
    let message = "Subject: =?gb2312?B?x+uy6crV?= Invoice\r\n now\r\nX-Mailer: The Bat!\r\n\r\nSubject: body\r\n";
    for (text, is_raw, wanted) in [
        ("Subject: 请查", false, true),
        ("subject: INVOICE NOW", false, true),
        ("Subject: /^请.*now$/", false, true),
        ("Subject: =?gb2312?", false, false),
        ("Subject: =?GB2312?", true, true),
        ("*: bat!", false, true),
        ("X-Mailer: invoice", false, false),
        ("Subject: body", false, false),
        ("To: a", false, false),
    ] {
        assert_eq!(is_met(Test::header(text, is_raw).unwrap(), message), wanted, "{text}");
    }
}

#[test]
fn charsets_wherever_they_are_named() {
    let plain = "Subject: x\r\nContent-Type: text/plain; charset=\"GB2312\"\r\n\r\nx\r\n";
    assert!(is_met(charset("gb2312"), plain) && !is_met(charset("gbk"), plain) && is_met(charset("gb*"), plain));
    assert!(is_met(charset("gbk"), "From: =?GBK?Q?a?= <a@b.test>\r\n\r\n"));
    assert!(is_met(charset("koi8-r"), "Content-Disposition: attachment; filename*=koi8-r''%C0\r\n\r\n"));
    assert!(!is_met(charset("koi8-r"), "Subject: koi8-r\r\n\r\ncharset=koi8-r\r\n"));
}

#[test]
fn scripts_of_subject_author_and_texts() {
    let han = |text| Test::script(text).unwrap();
    assert!(is_met(han("Han"), "Subject: =?utf-8?B?6K+35p+l5pS277yB?=\r\n\r\nhello\r\n"));
    assert!(is_met(han("han"), "Content-Transfer-Encoding: base64\r\n\r\n6K+35p+l5pS277yB\r\n"));
    assert!(!is_met(han("Han"), "Subject: hello\r\nTo: =?utf-8?B?6K+3?= <a@b>\r\n\r\nhello 6K+3\r\n"));
    let mixed = "Subject: =?utf-8?B?6K+3?=\r\n\r\nabcdefghi\r\n";
    assert!(is_met(han("Han 10%"), mixed) && !is_met(han("Han 11%"), mixed));
    for wrong in ["Chinese", "Han 0%", "Han 101%", "Han%", ""] {
        assert!(Test::script(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn attachments_by_name_type_and_size() {
    let message = "Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\nsetup.exe\r\n--x\r\n\
        Content-Type: application/zip; name=\"=?utf-8?Q?Setup.EXE?=\"\r\n\r\n12345\r\n--x\r\n\
        Content-Type: image/png\r\nContent-Disposition: attachment; filename=a.png\r\n\r\n1234567890\r\n--x--\r\n";
    let files = |name: &str, kind: &str, over| {
        let patterns = |text: &str| if text.is_empty() { Vec::new() } else { vec![Pattern::name(text).unwrap()] };
        Test::Attachment { names: patterns(name), types: patterns(kind), over }
    };
    for (name, kind, over, wanted) in [
        ("*.exe", "", None, true),
        ("setup", "", None, false),
        ("/set.p/", "application/*", Some(4), true),
        ("*.exe", "", Some(5), false),
        ("", "", Some(9), true),
        ("", "image/png", Some(10), false),
        ("*.exe", "image/*", None, false),
    ] {
        assert_eq!(is_met(files(name, kind, over), message), wanted, "{name} {kind} {over:?}");
    }
}

#[test]
fn what_may_hide_something_can_be_asked_for() {
    let malformed = |text: &str| Test::malformed(text).unwrap();
    let twofold = "Content-Type: text/plain\r\nContent-Type: text/html\r\n\r\nx\r\n";
    assert!(is_met(malformed("ambiguous"), twofold) && is_met(malformed("*"), twofold));
    assert!(!is_met(malformed("nested"), twofold));
    let word = "Subject: =?nobodys?q?a?=\r\n\r\nx\r\n";
    assert!(is_met(malformed("word"), word) && is_met(charset("nobodys"), word));
    assert!(!is_met(malformed("*"), "Subject: =?gbk?q?a?=\r\nContent-Type: text/plain\r\n\r\nx\r\n"));
    assert_eq!(Test::malformed("deep"), Err(ContentConditionError::Defect("deep".to_owned())));
    let known = ContentConditionError::Defect(String::new()).to_string();
    assert!(stentor_mime::walk::Defect::ALL.iter().all(|defect| known.contains(defect.name())));
}

#[test]
fn files_within_texts_and_texts_within_applications_are_seen() {
    let files =
        |name: &str| Test::Attachment { names: vec![Pattern::name(name).unwrap()], types: Vec::new(), over: None };
    assert!(is_met(files("*.exe"), "Subject: x\r\n\r\nbegin 644 a.exe\r\n#0V%T\r\n`\r\nend\r\n"));
    let xhtml = "Content-Type: application/xhtml+xml; name=a.xhtml\r\n\r\n<p>you w<b>on</b></p>\r\n";
    assert!(is_met(Test::Body(Pattern::contained("you won").unwrap()), xhtml) && is_met(files("*.xhtml"), xhtml));
}

#[test]
fn texts_are_searched_decoded_and_to_their_end() {
    let body = |text: &str| Test::Body(Pattern::contained(text).unwrap());
    let mut message =
        "Content-Type: text/plain; charset=koi8-r\r\nContent-Transfer-Encoding: 8bit\r\n\r\n".as_bytes().to_vec();
    message.extend_from_slice(&b"filler line\r\n".repeat(40_000));
    message.extend_from_slice(b"\xf0\xd2\xc9\xd7\xc5\xd4, you won\r\nlast");
    for (pattern, wanted) in
        [("привет, YOU", true), ("/^last$/", true), ("/^you/", false), ("you lost", false), ("filler", true)]
    {
        let mut rules = [rule("body", vec![body(pattern)])];
        let found = hits(&mut rules, &message, 4_000);
        assert_eq!(rules[0].failing(&found).is_none(), wanted, "{pattern}");
    }
}

#[test]
fn html_is_searched_as_its_source_and_as_people_see_it() {
    let message = "Content-Type: text/html\r\n\r\n<style>x</style><p>you w<b>on</b> &#35831;<a href=\"https://bad.example/\">x</a></p>\r\n";
    for (pattern, wanted) in [("you won 请", true), ("//bad.example/", true), ("w<b>on", true), ("style you", false)] {
        assert_eq!(is_met(Test::Body(Pattern::contained(pattern).unwrap()), message), wanted, "{pattern}");
    }
    // Tags do not count as letters.
    assert!(is_met(Test::script("Han 12%").unwrap(), message));
}

#[test]
fn phrases_are_found_however_lines_are_wrapped_and_words_are_cut() {
    let html = "Content-Type: text/html\r\n\r\n<p>Please verify your\r\n    bank <b>account</b>\r\n<p>\r\nVi&shy;ag\u{200b}ra\r\n";
    for (pattern, wanted) in [("verify your bank account", true), ("/^viagra$/", true), ("account viagra", false)] {
        assert_eq!(is_met(Test::Body(Pattern::contained(pattern).unwrap()), html), wanted, "{pattern}");
    }
    let plain =
        "Subject: Your\r\n\tac\u{ad}count \r\n   is locked\r\n\r\nCheap\u{200b}est Vi\u{ad}agra\r\nat  once\r\n";
    for (test, wanted) in [
        (Test::subject("your account is locked"), true),
        (Test::subject("/^your ac\\xADcount is/"), true),
        (Test::header("*: your account is", false), true),
        (Pattern::contained("cheapest viagra").map(Test::Body), true),
        (Pattern::contained("/vi\\xADagra$/").map(Test::Body), true),
        (Pattern::contained("viagra at").map(Test::Body), false),
        (Pattern::contained("at once").map(Test::Body), false),
    ] {
        let test = test.unwrap();
        assert_eq!(is_met(test.clone(), plain), wanted, "{test:?}");
    }
}

#[test]
fn html_that_names_its_charset_itself_is_read_in_it() {
    let html = b"<html><head><meta http-equiv=\"Content-Type\" content=\"text/html; charset=gb2312\"></head>\xc7\xeb\xb2\xe9\xca\xd5";
    let base64 = "PGh0bWw+PGhlYWQ+PG1ldGEgaHR0cC1lcXVpdj0iQ29udGVudC1UeXBlIiBjb250ZW50PSJ0ZXh0\r\n\
                  L2h0bWw7IGNoYXJzZXQ9Z2IyMzEyIj48L2hlYWQ+x+uy6crV\r\n";
    let as_it_is = [&b"Content-Type: text/html\r\n\r\n"[..], html, b"\r\n"].concat();
    let encoded = format!("Content-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n{base64}").into_bytes();
    let filler = b"filler ".repeat(20_000);
    let long = [&as_it_is[..], &filler, b"\xc7\xeb\r\n"].concat();
    for message in [as_it_is, encoded, long] {
        for (test, cut) in [
            (charset("gb2312"), 7),
            (charset("gb2312"), 1_000_000),
            (Test::script("Han").unwrap(), 100),
            (Test::Body(Pattern::contained("请查收").unwrap()), 100),
        ] {
            let mut rules = [rule("test", vec![test.clone()])];
            let found = hits(&mut rules, &message, cut);
            assert_eq!(rules[0].failing(&found), None, "{test:?} in pieces of {cut}");
        }
    }
    let declared = "Content-Type: text/html; charset=utf-8\r\n\r\n<meta charset=gbk>请\r\n";
    assert!(!is_met(charset("gbk"), declared) && is_met(Test::script("Han").unwrap(), declared));
    let plain = "Content-Type: text/plain\r\n\r\n<meta charset=gbk>\r\n";
    assert!(!is_met(charset("gbk"), plain));
}

#[test]
fn all_keys_must_hold_and_one_pattern_of_each() {
    let mut both = rule("charset", vec![charset("gbk"), charset("big5")]);
    both.add("subject", vec![Test::subject("offer").unwrap()]);
    let mut rules = [both];
    let met = hits(&mut rules, b"Subject: =?big5?q?offer?=\r\n\r\n", 100);
    assert_eq!(rules[0].failing(&met), None);
    assert_eq!(rules[0].met_by(&met), "charset big5 by \"big5\"; subject offer by \"offer\"");
    let missed = hits(&mut rules, b"Subject: =?big5?q?other?=\r\n\r\n", 100);
    assert_eq!(rules[0].failing(&missed), Some("subject"));
}

#[test]
fn what_is_no_pattern_is_an_error() {
    assert_eq!(Pattern::contained(""), Err(ContentConditionError::Empty));
    assert_eq!(Pattern::contained("/a\\b/"), Err(ContentConditionError::WordBoundary));
    assert!(Pattern::contained("/(?-u:\\b)a/").is_ok() && Pattern::name("*").is_ok());
    assert!(matches!(Pattern::contained("/(/"), Err(ContentConditionError::Expression(_))));
    assert!(Test::header("no colon", false).is_err() && Test::header(": x", false).is_err());
    let mut rules: Vec<ContentConditions> = (0..40)
        .map(|n| rule("body", vec![Test::Body(Pattern::contained(&format!("/x{n}(a{{1,1000}}){{100}}/")).unwrap())]))
        .collect();
    assert!(matches!(Matcher::new(rules.iter_mut()), Err(ContentConditionError::TooLarge(_))));
    assert!(ContentConditions::default().is_empty());
}

proptest! {
    #[test]
    fn cuts_do_not_matter(
        lines in proptest::collection::vec("(Subject: =\\?gbk\\?q\\?=C7=EB\\?=|Content-Type: text/html; charset=koi8-r|a b|win now|)\r\n", 0..8),
        cut in 1usize..40,
    ) {
        let message = lines.concat().into_bytes();
        let mut rules = [
            rule("charset", vec![charset("gbk"), charset("koi8-r")]),
            rule("script", vec![Test::script("Han 1%").unwrap()]),
            rule("body", vec![Test::Body(Pattern::contained("/win\\s+now/").unwrap())]),
            rule("subject", vec![Test::subject("请").unwrap()]),
        ];
        let (whole, parts) = (hits(&mut rules, &message, 10_000), hits(&mut rules, &message, cut));
        for rule in &rules {
            prop_assert_eq!(rule.failing(&whole), rule.failing(&parts));
        }
    }
}
