//! What rules on content cost: one message against many of them, and against none.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use stentor_rules::{ContentConditions, ContentScanner, Matcher, Pattern, Test};

/// As the server hands it over.
const PIECE_BYTES: usize = 256 * 1024;
const LINES: [&str; 6] = [
    "The quick brown fox jumps over the lazy dog and asks about the invoice of last month.",
    "Здравствуйте, это обычное письмо о встрече в понедельник, ответьте, пожалуйста.",
    "请查收附件中的文件，如有问题请与我们联系。",
    "Mit freundlichen Grüßen, Ihre Buchhaltung; Rückfragen bitte an die bekannte Adresse.",
    "Please see https://www.example.org/path/to/something?id=12345&lang=en for details.",
    "1234567890 -- == ** a few signs, and ${variables} {in} [brackets] (too)",
];

/// So many rules over a message of so many octets, so many times: median microseconds for a message.
pub fn run(rules: usize, bytes: usize, rounds: usize) -> Value {
    let message = message(bytes);
    let mut all = conditions(rules);
    let matcher = Arc::new(Matcher::new(all.iter_mut()).expect("patterns of our own"));
    let mut times = Vec::with_capacity(rounds);
    let mut held = 0;
    // The first ones build the states of the automata.
    for round in 0..rounds + rounds.div_ceil(10) {
        let begun = Instant::now();
        let mut scan = ContentScanner::new(matcher.clone(), 0, false);
        message.chunks(PIECE_BYTES).for_each(|piece| scan.push(piece));
        let hits = scan.finish();
        held = all.iter().filter(|conditions| conditions.failing(&hits).is_none()).count();
        if round >= rounds.div_ceil(10) {
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    json!({ "rules": rules, "octets": message.len(), "rounds": rounds, "held": held, "us": at(50), "us_p95": at(95) })
}

/// As filters have them: some words each, some expressions.
fn conditions(rules: usize) -> Vec<ContentConditions> {
    let one = |n: usize| {
        let contained = |text: String| Pattern::contained(&text).expect("a pattern of our own");
        let (key, test) = match n % 20 {
            0 => ("charset", Test::Charset(Pattern::name(["gb2312", "koi8*", "big5"][n % 3]).expect("a name"))),
            1 => ("script", Test::script(["Han 90%", "Thai", "Cyrillic 20%"][n % 3]).expect("a script")),
            2 => {
                let names = vec![Pattern::name(&format!("*.x{n}")).expect("a name")];
                ("attachment", Test::Attachment { names, types: Vec::new(), over: None })
            }
            3 | 4 => ("header", Test::header(&format!("X-Mailer: bulk{n}"), n.is_multiple_of(2)).expect("a field")),
            5..=7 => ("subject", Test::subject(&format!("offer {n}")).expect("a pattern")),
            8..=10 => ("body", Test::Body(contained(format!("/pay(pal|ment)?\\s+{n}[0-9]{{2,6}}/")))),
            11 => ("body", Test::Body(contained(format!("предложение {n}")))),
            12 => ("body", Test::Body(contained(format!("优惠{n}")))),
            13 => ("body", Test::Body(contained(format!("/https?:\\/\\/[a-z0-9.-]+\\.bad{n}\\//")))),
            _ => ("body", Test::Body(contained(format!("wonder drug {n}")))),
        };
        let mut conditions = ContentConditions::default();
        conditions.add(key, vec![test]);
        conditions
    };
    (0..rules).map(one).collect()
}

/// Two texts, one in base64 and one in quoted-printable.
fn message(bytes: usize) -> Vec<u8> {
    let mut out =
        b"Subject: =?utf-8?B?6K+35p+l5pS2?= an ordinary message\r\nX-Mailer: A mailer 1.0\r\nMIME-Version: 1.0\r\n\
        Content-Type: multipart/alternative; boundary=\"b\"\r\n\r\n--b\r\nContent-Type: text/plain; charset=utf-8\r\n\
        Content-Transfer-Encoding: base64\r\n\r\n"
            .to_vec();
    let lines: Vec<&str> = LINES.iter().copied().cycle().take(bytes / 250).collect();
    let text = lines.join("\r\n");
    for line in stentor_mime::transfer::base64(text.as_bytes()).as_bytes().chunks(76) {
        out.extend_from_slice(line);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(
        b"--b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n",
    );
    let mut writer = stentor_mime::quoted::QuotedPrintable::default();
    for line in LINES.iter().cycle() {
        if out.len() >= bytes {
            break;
        }
        writer.push(format!("<p>{line}</p>").as_bytes(), &mut out);
        writer.end_line(&mut out);
    }
    out.extend_from_slice(b"--b--\r\n");
    out
}
