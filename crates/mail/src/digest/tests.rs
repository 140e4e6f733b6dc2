//! Digests taken apart again: by a splitter that only knows RFC 2046, and by another MIME parser.

use mail_parser::{MessageParser, MimeHeaders as _, PartType};
use proptest::prelude::*;

use super::*;

fn spec(form: Form) -> Spec<'static> {
    Spec {
        list: "dev",
        address: "dev@lists.example",
        date: "Sat, 21 Nov 2026 21:16:40 +0000",
        message_id: "1.2@mx.us.example",
        archive: Some("https://lists.example/dev/"),
        form,
    }
}

/// Builds the digest of some posts, scanned and streamed in pieces of these sizes.
fn build(posts: &[Vec<u8>], form: Form, sizes: &[usize]) -> Result<(Vec<u8>, Plan), DigestError> {
    let mut sizes = sizes.iter().copied().cycle();
    let mut digest = Digest::new("0CX8M4H00000");
    for post in posts {
        digest.begin_post(None);
        let mut rest = post.as_slice();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(sizes.next().unwrap().clamp(1, rest.len()));
            digest.push(piece);
            rest = behind;
        }
    }
    let plan = digest.plan(&spec(form))?;
    assert_eq!(plan.posts(), posts.len());
    let mut out = Vec::new();
    for (no, post) in posts.iter().enumerate() {
        out.extend_from_slice(plan.before(no));
        let mut writer = plan.post();
        let mut rest = post.as_slice();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(sizes.next().unwrap().clamp(1, rest.len()));
            writer.push(piece, &mut out);
            rest = behind;
        }
        writer.finish(&mut out);
    }
    out.extend_from_slice(plan.end());
    assert_eq!(out.len() as u64, plan.size());
    Ok((out, plan))
}

fn mime(posts: &[Vec<u8>]) -> (Vec<u8>, Plan) {
    build(posts, Form::Mime, &[7]).unwrap()
}

/// Splits a message into header section and body.
fn halves(bytes: &[u8]) -> (String, &[u8]) {
    let at = memchr::memmem::find(bytes, b"\r\n\r\n").unwrap();
    (String::from_utf8(bytes[..at + 2].to_vec()).unwrap(), &bytes[at + 4..])
}

/// Splits a multipart body by RFC 2046 section 5.1.1: a delimiter is CRLF (or the beginning), `--`, boundary.
fn split<'a>(header: &str, body: &'a [u8]) -> Vec<&'a [u8]> {
    let boundary = header.split_once("boundary=\"").unwrap().1.split_once('"').unwrap().0;
    let delimiter = format!("\r\n--{boundary}");
    let mut parts = Vec::new();
    let mut starts: Vec<usize> = memchr::memmem::find_iter(body, delimiter.as_bytes()).collect();
    let mut begin = if body.starts_with(&delimiter.as_bytes()[2..]) {
        delimiter.len() - 2
    } else {
        starts.remove(0) + delimiter.len()
    };
    for at in starts {
        parts.push(body[begin..at].strip_prefix(b"\r\n").unwrap());
        begin = at + delimiter.len();
    }
    assert!(body[begin..].starts_with(b"--"), "the last delimiter closes");
    parts
}

/// Returns the posts of a MIME digest and the header section of each part.
fn posts_of(digest: &[u8]) -> Vec<(String, Vec<u8>)> {
    let (header, body) = halves(digest);
    let parts = split(&header, body);
    assert_eq!(parts.len(), 2);
    let (header, body) = halves(parts[1]);
    assert!(header.starts_with("Content-Type: multipart/digest;"), "{header}");
    let part = |part: &&[u8]| {
        let (header, body) = halves(part);
        (header, body.to_vec())
    };
    split(&header, body).iter().map(part).collect()
}

fn post(subject: &str, body: &str) -> Vec<u8> {
    format!("From: Ann <ann@home.example>\r\nSubject: {subject}\r\nX-Odd: 1\r\n\r\n{body}").into_bytes()
}

#[test]
fn another_reader_finds_posts_and_contents() {
    let posts = [post("one", "Hello\r\n"), post("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "--\r\nAnn\r\n"), post("", "x")];
    let (bytes, plan) = mime(&posts);
    assert!(bytes.is_ascii() && !plan.eight_bit());
    let message = MessageParser::default().parse(&bytes).unwrap();
    assert_eq!(message.subject(), Some("dev Digest, 3 posts"));
    assert_eq!(message.from().unwrap().first().unwrap().address(), Some("dev@lists.example"));
    assert_eq!(message.message_id(), Some("1.2@mx.us.example"));
    let contents = message.body_text(0).unwrap();
    assert!(contents.contains("All posts: https://lists.example/dev/"), "{contents}");
    assert!(contents.contains("   1. one (Ann)"), "{contents}");
    assert!(contents.contains("   2. Grüße (Ann)"), "{contents}");
    assert!(contents.contains("   3. (no subject) (Ann)"), "{contents}");
    let digest = message.parts.iter().find(|part| part.content_type().is_some_and(|t| t.subtype() == Some("digest")));
    let PartType::Multipart(children) = &digest.unwrap().body else { panic!("not a multipart") };
    let read: Vec<Vec<u8>> = children
        .iter()
        .map(|id| match &message.parts[*id as usize].body {
            PartType::Message(inner) => inner.raw_message().to_vec(),
            other => panic!("not a message: {other:?}"),
        })
        .collect();
    assert_eq!(read, posts);
}

#[test]
fn eight_bit_and_utf8_headers_are_declared() {
    let ascii = post("a", "x\r\n");
    let eight = post("b", "Grüße\r\n");
    let global = post("Grüße", "x\r\n");
    let latin = b"Subject: Gr\xfc\xdfe\r\n\r\nx\r\n".to_vec();
    let (bytes, plan) = mime(&[ascii, eight, global, latin]);
    assert!(plan.eight_bit());
    let (header, _) = halves(&bytes);
    assert!(header.contains("Content-Transfer-Encoding: 8bit\r\n") && header.is_ascii(), "{header}");
    let headers: Vec<String> = posts_of(&bytes).into_iter().map(|(header, _)| header).collect();
    assert_eq!(headers[0], "Content-Type: message/rfc822\r\n");
    assert_eq!(headers[1], "Content-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n");
    assert_eq!(headers[2], "Content-Type: message/global\r\nContent-Transfer-Encoding: 8bit\r\n");
    assert_eq!(headers[3], "Content-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n");
}

/// For a host without 8BITMIME our own conversion must be able to process the digest.
#[test]
fn a_digest_can_be_made_seven_bit() {
    let (bytes, _) = mime(&[post("b", "Grüße\r\n"), post("a", "x\r\n")]);
    let (mut converter, mut out) = (stentor_mime::recode::Converter::new(), Vec::new());
    converter.push(&bytes, &mut out).unwrap();
    converter.finish(&mut out).unwrap();
    assert!(out.is_ascii());
    let message = MessageParser::default().parse(&out).unwrap();
    let text: Vec<String> = message
        .parts
        .iter()
        .filter_map(|part| match &part.body {
            PartType::Message(inner) => inner.body_text(0).map(std::borrow::Cow::into_owned),
            _ => None,
        })
        .collect();
    assert_eq!(text.iter().map(|text| text.trim()).collect::<Vec<_>>(), ["Grüße", "x"]);
}

#[test]
fn posts_that_try_to_end_their_part() {
    let token = "0CX8M4H00000";
    let evil = format!("\r\n--=_{token}_0_d--\r\n=_{token}_7_=_{token}_41_m\r\n--=_{token}_0_m\r\n=_{token}_");
    let (bytes, _) = mime(&[post("a", &evil), post("b", "x\r\n")]);
    assert!(String::from_utf8_lossy(&bytes).contains(&format!("\"=_{token}_42_d\"")));
    assert_eq!(posts_of(&bytes)[0].1, post("a", &evil));
    // Every number is taken: an error, rather than a risk.
    let last = format!("=_{token}_{}_", 10u64.pow(18) - 1);
    assert_eq!(build(&[post("a", &last)], Form::Mime, &[1]).map(|_| ()), Err(DigestError::Boundary));
    // A longer number cannot be ours.
    let longer = format!("=_{token}_{}_", 10u64.pow(18));
    assert_eq!(posts_of(&build(&[post("a", &longer)], Form::Mime, &[4096]).unwrap().0)[0].1, post("a", &longer));
}

#[test]
fn limits() {
    assert_eq!(build(&[], Form::Mime, &[1]).map(|_| ()), Err(DigestError::Empty));
    let many = vec![post("a", "x\r\n"); POSTS_MAX + 1];
    assert_eq!(build(&many, Form::Plain, &[99]).map(|_| ()), Err(DigestError::TooMany));
    assert_eq!(posts_of(&mime(&many[1..]).0).len(), POSTS_MAX);
}

#[test]
fn nothing_given_leaves_its_field() {
    let mut digest = Digest::new("x\r\ny\"");
    digest.begin_post(None);
    digest.push(&post("a\r\n\tb", "x\r\n"));
    let odd = Spec { list: "a\r\nBcc: x", archive: Some("h\r\n\r\nx"), ..spec(Form::Plain) };
    let plan = digest.plan(&odd).unwrap();
    let (header, body) = halves(plan.before(0));
    assert!(header.lines().all(|line| !line.starts_with("Bcc")), "{header}");
    assert!(String::from_utf8_lossy(body).contains("1. a b (Ann)"));
}

#[test]
fn the_contents_have_permalinks() {
    let mut digest = Digest::new("x");
    for (subject, permalink) in [("one", Some("https://l.example/1@x/")), ("two", None)] {
        digest.begin_post(permalink);
        digest.push(&post(subject, "x\r\n"));
    }
    let plan = digest.plan(&spec(Form::Mime)).unwrap();
    let head = String::from_utf8_lossy(plan.before(0)).into_owned();
    assert!(head.contains("   1. one (Ann)\r\n      https://l.example/1@x/\r\n   2. two (Ann)\r\n"), "{head}");
}

#[test]
fn the_form_of_rfc_1153() {
    let rule = "-".repeat(30);
    let posts = [
        post("one", &format!("a\r\n{rule}\r\n-{rule} x\r\n{}\r\nlast line", &rule[1..])),
        b"Received: by x\r\nMIME-Version: 1.0\r\nContent-Type: text/html\r\nSubject: two\r\n\r\n<p>\r\n".to_vec(),
        b"Subject: three\r\n".to_vec(),
    ];
    let (bytes, plan) = build(&posts, Form::Plain, &[3, 1, 50]).unwrap();
    assert!(!plan.eight_bit());
    let (header, body) = halves(&bytes);
    assert!(header.ends_with("charset=us-ascii\r\nContent-Transfer-Encoding: 7bit\r\n"), "{header}");
    let body = std::str::from_utf8(body).unwrap();
    let (preamble, rest) = body.split_once(&format!("\r\n{}\r\n\r\n", "-".repeat(70))).unwrap();
    assert!(preamble.contains("   2. two\r\n   3. three"), "{preamble}");
    let parts: Vec<&str> = rest.split(&format!("\r\n{rule}\r\n\r\n")).collect();
    assert_eq!(
        parts,
        [
            &format!(
                "From: Ann <ann@home.example>\r\nSubject: one\r\n\r\na\r\n {rule}\r\n {rule}- x\r\n{}\r\nlast line\r\n",
                &rule[1..]
            ),
            "MIME-Version: 1.0\r\nContent-Type: text/html\r\nSubject: two\r\n\r\n<p>\r\n",
            "Subject: three\r\n\r\n",
            "End of dev Digest\r\n*****************\r\n"
        ]
    );
}

#[test]
fn charsets_of_the_plain_form() {
    let charset = |posts: &[Vec<u8>]| {
        let (bytes, plan) = build(posts, Form::Plain, &[1]).unwrap();
        let (header, body) = halves(&bytes);
        assert_eq!(plan.eight_bit(), !body.is_ascii());
        header.split_once("charset=").unwrap().1.split_once("\r\n").unwrap().0.to_owned()
    };
    assert_eq!(charset(&[post("a", "x")]), "us-ascii");
    assert_eq!(charset(&[post("a", "Grüße")]), "utf-8");
    assert_eq!(charset(&[post("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "x")]), "utf-8");
    assert_eq!(charset(&[b"A: b\r\n\r\n\xfc\r\n".to_vec(), post("ü", "Grüße")]), "unknown-8bit");
    // A character is not completed by the next post.
    assert_eq!(charset(&[b"A: b\r\n\r\n\xc3".to_vec(), b"\xbc: b\r\n".to_vec()]), "unknown-8bit");
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        "[ -~]{0,60}",
        "(--)?=_0CX8M4H00000_[0-9]{0,19}_?[md]?(--)?",
        "-{25,35}",
        "\\PC{0,20}",
        Just(String::new()),
    ];
    let lines = proptest::collection::vec(line, 0..12);
    (lines, any::<bool>(), proptest::option::of(0x80u8..=0xff)).prop_map(|(lines, ended, raw)| {
        let mut post = b"Subject: a post\r\n\r\n".to_vec();
        post.extend_from_slice(lines.join("\r\n").as_bytes());
        post.extend(raw);
        if ended {
            post.extend_from_slice(b"\r\n");
        }
        post
    })
}

proptest! {
    #[test]
    fn posts_come_back_octet_for_octet(
        posts in proptest::collection::vec(message(), 1..5), sizes in proptest::collection::vec(1usize..90, 1..8),
    ) {
        match build(&posts, Form::Mime, &sizes) {
            Ok((bytes, plan)) => {
                let read: Vec<Vec<u8>> = posts_of(&bytes).into_iter().map(|(_, post)| post).collect();
                prop_assert_eq!(&read, &posts);
                prop_assert_eq!(plan.eight_bit(), !bytes.is_ascii());
                // The cuts do not matter either.
                prop_assert_eq!(bytes, build(&posts, Form::Mime, &[1]).unwrap().0);
            }
            Err(error) => prop_assert_eq!(error, DigestError::Boundary),
        }
    }

    #[test]
    fn plain_digests_have_their_posts(
        posts in proptest::collection::vec(message(), 1..5), sizes in proptest::collection::vec(1usize..90, 1..8),
    ) {
        let Ok((bytes, _)) = build(&posts, Form::Plain, &sizes) else { return Ok(()) };
        let rule = format!("\r\n{}\r\n\r\n", "-".repeat(30));
        prop_assert_eq!(memchr::memmem::find_iter(&bytes, rule.as_bytes()).count(), posts.len());
        prop_assert_eq!(bytes, build(&posts, Form::Plain, &[1]).unwrap().0);
    }

    #[test]
    fn any_octets_are_survived(
        posts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..4),
        sizes in proptest::collection::vec(1usize..40, 1..5), plain: bool,
    ) {
        let form = if plain { Form::Plain } else { Form::Mime };
        let (bytes, _) = build(&posts, form, &sizes).unwrap();
        if form == Form::Mime {
            let read: Vec<Vec<u8>> = posts_of(&bytes).into_iter().map(|(_, post)| post).collect();
            prop_assert_eq!(read, posts);
        }
    }
}
