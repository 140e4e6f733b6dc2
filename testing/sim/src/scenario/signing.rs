//! DKIM signatures per second on all processors: the header of a copy is made canonical, hashed and signed, as the
//! server does it; the body's hash is known. Every copy has another header.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stentor_dkim::{Algorithm, MessageHash, Signer, SigningKey, Times, is_signed_by, sign};

/// The header of a post as it leaves, with the fields of a list manager.
const HEADER: &str = "Received: from app.example.org ([192.0.2.7]) by mx.example.org with ESMTP id 0001;\r\n\
    \tMon, 30 Nov 2026 12:00:00 +0000\r\n\
    List-Id: News of the example <news.lists.example.org>\r\n\
    List-Unsubscribe: <https://lists.example.org/u/0123456789abcdef0123456789abcdef>,\r\n\
    \t<mailto:news-leave@lists.example.org>\r\n\
    List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n\
    List-Post: <mailto:news@lists.example.org>\r\n\
    Precedence: list\r\n\
    From: \"Ann Lee\" <ann@example.org>\r\n\
    To: news@lists.example.org\r\n\
    Subject: The news of the week, with a subject that needs\r\n a second line\r\n\
    Date: Mon, 30 Nov 2026 12:00:00 +0000\r\n\
    MIME-Version: 1.0\r\n\
    Content-Type: multipart/alternative; boundary=\"=_0123456789\"\r\n";
const TIMES: Times = Times { signed: 1_796_040_000, expires: None };

/// Signs for `seconds` with an RSA key of 2048 bits, or with Ed25519.
///
/// # Panics
/// The library fails, or a signature is not valid.
pub fn run(is_rsa: bool, seconds: u64) -> Value {
    let algorithm = if is_rsa { Algorithm::RsaSha256 } else { Algorithm::Ed25519Sha256 };
    let key = Arc::new(SigningKey::generate(algorithm).expect("a key").key);
    let signers = [Signer { domain: "example.org".into(), selector: "s1".into(), key }];
    let mut message = MessageHash::default();
    message.push(HEADER.as_bytes());
    message.push(b"\r\nHello\r\n");
    let (_, body) = message.finish();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (is_over, signed) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (is_over, signed, signers) = (&is_over, &signed, &signers);
            scope.spawn(move || {
                let mut copies = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    let header = format!("{HEADER}Message-ID: <{thread}.{copies}@example.org>\r\n");
                    let fields = sign(header.as_bytes(), body, signers, TIMES).expect("a signature");
                    if copies == 0 {
                        let whole = [&fields[..], header.as_bytes()].concat();
                        assert!(is_signed_by(&whole, body, &signers[0], TIMES.signed));
                    }
                    copies += 1;
                }
                signed.fetch_add(copies, Ordering::Relaxed);
            });
        }
        std::thread::sleep(Duration::from_secs(seconds));
        is_over.store(true, Ordering::Relaxed);
    });
    let per_s = signed.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    json!({ "algorithm": algorithm.name(), "threads": threads, "per_s": per_s, "header_bytes": HEADER.len() })
}
