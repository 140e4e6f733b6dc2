//! `stentor mime show`: prints a message's header and parts.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use stentor_control::format::{bytes, plural};
use stentor_mime::charset::Charset;
use stentor_mime::scripts::Scripts;
use stentor_mime::walk::{Defect, Kind, Part, Visitor, Walker};
use stentor_mime::words;
use stentor_records::escape::printable;

use super::{LINE_BYTES_MAX, ended, listed};
use crate::output::print;

/// Maximum number of parts and header fields shown.
const PARTS_MAX: usize = 10_000;
const FIELDS_MAX: usize = 10_000;
/// Octets of decoded text shown, for all parts together.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Header fields of an attached message that are shown to people.
const FIELDS_WITHIN: [&str; 5] = ["from", "to", "cc", "date", "subject"];

#[derive(Args)]
pub(super) struct ShowArgs {
    /// The message [default: standard input].
    file: Option<PathBuf>,
    /// Also show the decoded text of each part.
    #[arg(long)]
    text: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &ShowArgs) -> ExitCode {
    let file = options.file.as_deref().filter(|path| *path != Path::new("-"));
    let read = match file {
        None => read(options, &mut io::stdin().lock()),
        Some(path) => File::open(path)
            .and_then(|mut file| read(options, &mut file))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    };
    ended(read.and_then(|seen| {
        print(&if options.json { format!("{}\n", seen.in_json(options.text)) } else { seen.in_words(options.text) })
    }))
}

fn read(options: &ShowArgs, from: &mut dyn Read) -> io::Result<MessageOutline> {
    let (mut walker, mut seen) =
        (Walker::new(), MessageOutline { keeps_text: options.text, ..MessageOutline::default() });
    let mut piece = vec![0; 64 * 1024];
    loop {
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                seen.bytes += count as u64;
                walker.push(&piece[..count], &mut seen);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    walker.finish(&mut seen);
    Ok(seen)
}

/// The parts and fields to show.
#[derive(Default)]
struct MessageOutline {
    bytes: u64,
    rows: Vec<Row>,
    /// Rows that have not ended, innermost last.
    open: Vec<usize>,
    /// Fields of the next part.
    fields: Vec<(String, words::Decoded)>,
    fields_told: usize,
    text_bytes: usize,
    keeps_text: bool,
    limit: Option<&'static str>,
    defects: BTreeSet<Defect>,
}

struct Row {
    part: Part,
    /// Names and decoded values.
    fields: Vec<(String, words::Decoded)>,
    size: u64,
    scripts: Scripts,
    text: String,
    /// Names and sizes of files embedded in the text.
    files: Vec<(String, u64)>,
}

impl Visitor for MessageOutline {
    fn field(&mut self, _: &[u32], name: &[u8], value: &[u8], fallback: Charset) {
        if self.fields_told == FIELDS_MAX {
            self.limit = Some("too many header fields");
            return;
        }
        self.fields_told += 1;
        let name = String::from_utf8_lossy(name).into_owned();
        let value = words::decode(value.trim_ascii(), fallback);
        if value.is_broken {
            self.defects.insert(Defect::Word);
        }
        self.fields.push((name, value));
    }

    fn part(&mut self, part: &Part) {
        let fields = std::mem::take(&mut self.fields);
        if self.rows.len() == PARTS_MAX {
            self.limit = Some("too many parts");
            return;
        }
        self.open.push(self.rows.len());
        let (scripts, text) = (Scripts::default(), String::new());
        self.rows.push(Row { part: part.clone(), fields, size: 0, scripts, text, files: Vec::new() });
    }

    fn text(&mut self, part: &Part, text: &str) {
        let Some(row) = self.rows.last_mut().filter(|row| row.part.path == part.path) else { return };
        row.scripts.add(text);
        if self.keeps_text {
            let left = TEXT_BYTES_MAX - self.text_bytes;
            let kept = &text[..text.floor_char_boundary(left)];
            self.text_bytes += kept.len();
            row.text.push_str(kept);
            if kept.len() < text.len() {
                self.limit = Some("too much text to show");
            }
        }
    }

    fn file(&mut self, part: &Part, name: &str, size: u64) {
        let Some(row) = self.rows.last_mut().filter(|row| row.part.path == part.path) else { return };
        if row.files.len() < PARTS_MAX {
            row.files.push((name.to_owned(), size));
        } else {
            self.limit = Some("too many files in a text");
        }
    }

    fn defect(&mut self, _: &[u32], defect: Defect) {
        self.defects.insert(defect);
    }

    fn end(&mut self, part: &Part, size: u64) {
        if let Some(at) = self.open.pop_if(|at| self.rows[*at].part.path == part.path) {
            self.rows[at].size = size;
        }
    }
}

impl MessageOutline {
    fn in_words(&self, with_text: bool) -> String {
        let mut out = format!("{}, {}\n", bytes(self.bytes), plural(self.rows.len() as u64, "part"));
        for row in &self.rows {
            let within = !row.part.path.is_empty();
            for (name, value) in row.fields.iter().filter(|_| row.part.of_message) {
                if within && !FIELDS_WITHIN.iter().any(|shown| name.eq_ignore_ascii_case(shown)) {
                    continue;
                }
                let charsets = if value.charsets.is_empty() {
                    String::new()
                } else {
                    format!("  [{}]", value.charsets.join(", "))
                };
                let line = printable(&format!("{name}: {}{charsets}", value.text), LINE_BYTES_MAX);
                let _ = writeln!(out, "{}{line}", if within { "      " } else { "" });
            }
            if !within {
                out.push('\n');
            }
            let _ = writeln!(out, "{}", row.in_words());
            for (name, size) in &row.files {
                let file = format!("uuencoded {name:?}, {}", bytes(*size));
                let _ = writeln!(out, "      {}", printable(&file, LINE_BYTES_MAX));
            }
            if with_text && !row.text.is_empty() {
                for line in row.text.lines() {
                    let _ = writeln!(out, "      | {}", printable(line, LINE_BYTES_MAX));
                }
            }
        }
        if !self.defects.is_empty() {
            let _ = writeln!(out, "\nmalformed: {}", self.named_defects().join(", "));
        }
        if let Some(limit) = self.limit {
            let _ = writeln!(out, "\noutput incomplete: {limit}");
        }
        out
    }

    fn in_json(&self, with_text: bool) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(|row| row.in_json(with_text)).collect();
        json!({ "bytes": self.bytes, "parts": rows, "malformed": self.named_defects(), "limit": self.limit })
    }

    fn named_defects(&self) -> Vec<&'static str> {
        self.defects.iter().map(|defect| defect.name()).collect()
    }
}

impl Row {
    /// The part's number, such as `1.2`; `-` for the message.
    fn number(&self) -> String {
        let path: Vec<String> = self.part.path.iter().map(|n| (n + 1).to_string()).collect();
        if path.is_empty() { "-".to_owned() } else { path.join(".") }
    }

    fn in_words(&self) -> String {
        let part = &self.part;
        let mut words = vec![part.content_type.value.clone()];
        if matches!(part.kind, Kind::Text | Kind::Other) {
            words.push(bytes(self.size));
            words.extend(part.charset.as_ref().map(|charset| match Charset::named(charset.as_bytes()) {
                Some(_) => charset.clone(),
                None => format!("{charset} (unknown)"),
            }));
            words.push(part.encoding.name().to_owned());
        }
        if self.scripts.total() > 0 {
            words.push(listed(&self.scripts).replace(", ", " "));
        }
        words.extend(part.names.iter().map(|name| format!("{name:?}")));
        if part.is_attachment() {
            words.push("attachment".to_owned());
        }
        // A name may contain characters that `{:?}` does not escape.
        format!("{:<5} {}", self.number(), printable(&words.join(", "), LINE_BYTES_MAX))
    }

    fn in_json(&self, with_text: bool) -> Value {
        let part = &self.part;
        let fields: Vec<Value> = self
            .fields
            .iter()
            .map(|(name, value)| json!({ "name": name, "value": value.text, "charsets": value.charsets }))
            .collect();
        let scripts: serde_json::Map<String, Value> =
            self.scripts.listed().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
        let mut row = json!({
            "part": self.number(),
            "type": part.content_type.value,
            "encoding": part.encoding.name(),
            "charset": part.charset,
            "names": part.names,
            "attachment": part.is_attachment(),
            "size": self.size,
            "scripts": scripts,
            "header": fields,
            "uuencoded": self.files.iter().map(|(name, size)| json!({ "name": name, "size": size })).collect::<Vec<_>>(),
        });
        if with_text {
            row["text"] = self.text.clone().into();
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] =
        b"Subject: =?gb2312?B?x+uy6crV?=\x1b[2J\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\
        Content-Type: text/plain; charset=koi8-r\r\nContent-Transfer-Encoding: base64\r\n\r\n8NLJ18XU\r\n--b\r\n\
        Content-Type: application/pdf; name*=utf-8''%E2%80%AE%E8%AF%B7.pdf\r\n\r\nabc\r\n--b--\r\n";

    fn seen(text: bool) -> MessageOutline {
        let options = ShowArgs { file: None, text, json: false };
        read(&options, &mut &MESSAGE[..]).unwrap()
    }

    #[test]
    fn a_message_is_shown() {
        let shown = seen(true).in_words(true);
        for line in [
            "Subject: 请查收\\x1b[2J  [gb2312]",
            "-     multipart/mixed",
            "1     text/plain, 6 B, koi8-r, base64, Cyrillic 6",
            "      | Привет",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line} in\n{shown}");
        }
        assert!(shown.contains("请.pdf") && shown.contains("attachment"));
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    }

    #[test]
    fn a_message_as_json() {
        let shown = seen(false).in_json(false);
        assert_eq!(shown["parts"][0]["header"][0]["charsets"][0], "gb2312");
        assert_eq!(shown["parts"][1]["scripts"]["Cyrillic"], 6);
        assert_eq!((&shown["parts"][2]["size"], &shown["parts"][2]["attachment"]), (&json!(3), &json!(true)));
        assert!(shown["parts"][1].get("text").is_none() && shown["limit"].is_null());
    }
}
