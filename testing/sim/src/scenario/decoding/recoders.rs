//! What conversion costs on the way out: header fields encoded and folded for hosts without 8BITMIME, and for any host
//! where a line is over 998 octets; bodies that are encoded and decoded. Any client chooses them, and each attempt to
//! deliver pays for them.

use stentor_mime::recode::{Converter, RecodeTarget, Survey};

use super::chain::thread_ns;
use super::grammar::Decoder;

/// Octets that are converted at once.
const PIECE_BYTES: usize = 64 * 1024;

const FIELDS: &[&[u8]] = &[
    b"X-A: ",
    b"Subject: ",
    b"To: ",
    b"From: ",
    b"References: ",
    b"List-Post: ",
    b"DKIM-Signature: ",
    b"Received: ",
    b"Content-Type: a/b",
    b"Content-Disposition: attachment",
];

pub const RECODERS: [Decoder; 2] = [
    Decoder {
        name: "recode.fields",
        heads: FIELDS,
        tokens: &[
            b"a ",
            b"a",
            b" ",
            b"\t",
            b"x=?u?q?a?=",
            b"=?utf-8?q?a?= ",
            b"=?utf-8?q?a?=",
            b"=?",
            b"?=",
            b"(",
            b")",
            b"(\xc3\xa9)",
            b"a\"\xc3\xa9\"",
            b"\"",
            b"\\",
            b"<",
            b">",
            b"<a@b>",
            b"@",
            b",",
            b";",
            b":",
            b"\xc3\xa9",
            b"\xc3\xa9 ",
            b"\x80",
            b"; name=\xc3\xa9",
            b"; name*0=a",
            b"; name*1*=%41",
            b"; n=",
            b"\"\xc3\xa9\" ",
            b"b=",
            b"\r\n ",
            b"\r\nX-B: \xc3\xa9",
        ],
        seeds: &[
            (0, &[b"a "]),
            (2, &[b"x=?u?q?a?="]),
            (2, &[b"(\xc3\xa9)"]),
            (2, &[b"a\"\xc3\xa9\""]),
            (3, &[b"\xc3\xa9 a "]),
            (0, &[b"=?utf-8?q?a?= \xc3\xa9"]),
            (8, &[b"; name=\xc3\xa9"]),
            (8, &[b"; name*1*=%41"]),
            (2, &[b"(("]),
            (2, &[b"\"a"]),
            (2, &[b"<a"]),
            (1, &[b"=?utf-8?q?a?="]),
            (0, &[b"=?a"]),
        ],
    },
    Decoder {
        name: "recode.bodies",
        heads: &[
            b"Content-Type: text/plain; charset=utf-8\r\n\r\n",
            b"MIME-Version: 1.0\r\nContent-Transfer-Encoding: base64\r\n\r\n",
            b"MIME-Version: 1.0\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n",
            b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n",
            b"Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\n\r\n",
        ],
        tokens: &[
            b"a",
            b" ",
            b"\t",
            b"-",
            b"--",
            b"--b",
            b"\r\n",
            b"\r\n--b\r\n",
            b"=",
            b"=41",
            b"=\r\n",
            b"=C3=A9",
            b"\xc3\xa9",
            b"\x80",
            b"QUJD",
            b"A=",
            b"Content-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n",
            b"Content-Type: message/rfc822\r\n\r\n",
            b"Content-Transfer-Encoding: quoted-printable\r\n\r\n",
        ],
        seeds: &[
            (0, &[b"\xc3\xa9"]),
            (0, &[b" "]),
            (2, &[b"=C3=A9"]),
            (2, &[b" "]),
            (1, &[b"A="]),
            (3, &[b"\r\n--b\r\n"]),
            (4, &[b"\xc3\xa9-"]),
            (3, &[b"Content-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n"]),
        ],
    },
];

const CONVERSIONS: [fn(&[u8]); 4] = [
    |message| converted(Converter::new(), message),
    |message| converted(Converter::lossy(), message),
    |message| converted(Converter::of_lines(), message),
    surveyed,
];

/// Nanoseconds of the processor for an octet, by the most expensive conversion: for each the least of so many runs.
pub fn cost(message: &[u8], runs: usize) -> f64 {
    let least = |convert: fn(&[u8])| (0..runs).map(|_| timed(|| convert(message))).min().unwrap_or_default();
    let most = CONVERSIONS.into_iter().map(least).max().unwrap_or_default();
    most as f64 / message.len().max(1) as f64
}

fn timed(work: impl FnOnce()) -> u64 {
    let begun = thread_ns();
    work();
    thread_ns() - begun
}

fn converted(mut converter: Converter, message: &[u8]) {
    let mut out = Vec::new();
    for piece in message.chunks(PIECE_BYTES) {
        if converter.push(piece, &mut out).is_err() {
            return;
        }
        std::hint::black_box(out.len());
        out.clear();
    }
    std::hint::black_box(converter.finish(&mut out).is_ok());
}

fn surveyed(message: &[u8]) {
    let mut survey = Survey::new(RecodeTarget::EightBit);
    message.chunks(PIECE_BYTES).for_each(|piece| survey.push(piece));
    std::hint::black_box(survey.finish().is_ok());
}
