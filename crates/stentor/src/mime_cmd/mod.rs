//! `stentor mime`: decodes encoded text, shows whole messages, and encodes text for a message.
//!
//! Text from a message is printed without control characters and direction overrides; `--json` prints it unchanged, in
//! JSON escapes. Memory: one input of [`INPUT_BYTES_MAX`]; a shown message is streamed.

mod show;

use std::fmt::Write as _;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use stentor_mime::charset::Charset;
use stentor_mime::guess::{Form, Reading};
use stentor_mime::quoted::QuotedPrintable;
use stentor_mime::scripts::Scripts;
use stentor_mime::transfer;
use stentor_mime::words::{self, CharsetLabel};
use stentor_records::escape::printable;

use self::show::ShowArgs;
use crate::output::{done, is_closed, print};

/// Octets of an input that is decoded or encoded as a whole.
const INPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Number of characters whose code points are printed for people.
const CODE_POINTS_SHOWN: usize = 200;
/// Maximum octets of a line printed for people.
const LINE_BYTES_MAX: usize = 16 * 1024;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Decode an encoded word, base64 or quoted-printable, with code points and scripts.
    Decode(DecodeArgs),
    /// Encode text as encoded words, base64 or quoted-printable.
    Encode(EncodeArgs),
    /// Show a message: decoded header, parts, charsets, file names, sizes.
    Show(ShowArgs),
}

#[derive(Args)]
struct DecodeArgs {
    /// The text to decode; several are joined with spaces [default: standard input].
    text: Vec<String>,
    /// Its encoding [default: guessed].
    #[arg(long = "as", value_name = "FORM")]
    form: Option<FormName>,
    /// The charset, if the text does not name one [default: guessed].
    #[arg(long, value_name = "NAME", value_parser = charset)]
    charset: Option<Charset>,
    /// Decode each line of standard input separately.
    #[arg(long, conflicts_with = "text")]
    lines: bool,
    /// Print JSON, one object per input.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct EncodeArgs {
    /// The text to encode; several are joined with spaces [default: standard input].
    text: Vec<String>,
    /// The encoding.
    #[arg(long = "as", value_name = "FORM", default_value = "word")]
    form: Target,
    /// The charset.
    #[arg(long, value_name = "NAME", value_parser = label, default_value = "utf-8")]
    charset: Label,
}

/// A charset, and the name by which it was requested.
#[derive(Clone)]
struct Label {
    charset: Charset,
    name: String,
}

fn label(name: &str) -> Result<Label, String> {
    Ok(Label { charset: charset(name)?, name: name.to_owned() })
}

#[derive(Clone, Copy, ValueEnum)]
enum FormName {
    Word,
    Base64,
    QuotedPrintable,
    /// A parameter (RFC 2231): utf-8''%C3%A9.
    Parameter,
    /// Not encoded.
    None,
}

#[derive(Clone, Copy, ValueEnum)]
enum Target {
    /// An encoded word with base64.
    Word,
    /// An encoded word with the Q encoding.
    QWord,
    Base64,
    QuotedPrintable,
}

impl From<FormName> for Form {
    fn from(name: FormName) -> Form {
        match name {
            FormName::Word => Form::Word,
            FormName::Base64 => Form::Base64,
            FormName::QuotedPrintable => Form::QuotedPrintable,
            FormName::Parameter => Form::Parameter,
            FormName::None => Form::Plain,
        }
    }
}

fn charset(name: &str) -> Result<Charset, String> {
    Charset::named(name.as_bytes()).ok_or_else(|| "not a known charset".to_owned())
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match &options.command {
        Command::Decode(decode) if decode.lines => ended(decode_lines(decode)),
        Command::Decode(decode) => {
            ended(input(&decode.text).and_then(|input| print(&decode.shown(without_line_end(&input)))))
        }
        Command::Encode(encode) => match input(&encode.text).map(|input| encoded(encode, &input)) {
            Ok(Ok(text)) => done(print(&text)),
            Ok(Err(why)) => {
                eprintln!("stentor: {why}");
                ExitCode::FAILURE
            }
            Err(error) => ended(Err(error)),
        },
        Command::Show(show) => show::run(show),
    }
}

/// The exit code of a command that reads and prints.
fn ended(result: io::Result<()>) -> ExitCode {
    match result {
        Err(error) if !is_closed(&error) => {
            eprintln!("stentor: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn input(text: &[String]) -> io::Result<Vec<u8>> {
    if !text.is_empty() && text != ["-"] {
        return Ok(text.join(" ").into_bytes());
    }
    let mut input = Vec::new();
    io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut input)?;
    if input.len() as u64 > INPUT_BYTES_MAX {
        return Err(io::Error::other(format!("standard input is larger than {} MiB", INPUT_BYTES_MAX >> 20)));
    }
    Ok(input)
}

fn without_line_end(input: &[u8]) -> &[u8] {
    let input = input.strip_suffix(b"\n").unwrap_or(input);
    input.strip_suffix(b"\r").unwrap_or(input)
}

fn decode_lines(decode: &DecodeArgs) -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::BufWriter::new(io::stdout().lock()));
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.by_ref().take(INPUT_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return output.flush();
        }
        output.write_all(decode.shown(without_line_end(&line)).as_bytes())?;
    }
}

impl DecodeArgs {
    fn shown(&self, octets: &[u8]) -> String {
        let reading = Reading::of(octets, self.form.map(Form::from), self.charset);
        if self.json { format!("{}\n", in_json(&reading)) } else { in_words(&reading) }
    }
}

fn code_points(text: &str) -> impl Iterator<Item = String> {
    text.chars().map(|c| format!("U+{:04X}", u32::from(c)))
}

fn in_json(reading: &Reading) -> Value {
    let scripts: serde_json::Map<String, Value> =
        Scripts::of(&reading.text).listed().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
    json!({
        "encoding": reading.form.name(),
        "charsets": reading.charsets,
        "charset_guessed": reading.is_charset_guessed,
        "text": reading.text,
        "code_points": code_points(&reading.text).collect::<Vec<_>>(),
        "scripts": scripts,
    })
}

fn in_words(reading: &Reading) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "encoding  {}", reading.form.name());
    let guessed = if reading.is_charset_guessed { " (guessed)" } else { "" };
    let _ = writeln!(out, "charset   {}{guessed}", printable(&reading.charsets.join(", "), LINE_BYTES_MAX));
    for (n, line) in reading.text.lines().enumerate() {
        let _ = writeln!(out, "{:<9} {}", if n == 0 { "text" } else { "" }, printable(line, LINE_BYTES_MAX));
    }
    let mut points: Vec<String> = code_points(&reading.text).take(CODE_POINTS_SHOWN + 1).collect();
    if points.len() > CODE_POINTS_SHOWN {
        points.truncate(CODE_POINTS_SHOWN);
        points.push("...".to_owned());
    }
    for (n, line) in points.chunks(10).enumerate() {
        let _ = writeln!(out, "{:<9} {}", if n == 0 { "code" } else { "" }, line.join(" "));
    }
    let _ = writeln!(out, "scripts   {}", listed(&Scripts::of(&reading.text)));
    out
}

/// Formats `Han 3, Latin 2`.
fn listed(scripts: &Scripts) -> String {
    let all: Vec<String> = scripts.listed().iter().map(|(name, count)| format!("{name} {count}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn encoded(encode: &EncodeArgs, input: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(input).map_err(|_| "the text is not UTF-8".to_owned())?;
    let Label { charset, name } = &encode.charset;
    let lacks = || format!("{} cannot be encoded in {}", shortened(text), charset.name());
    let word = |form| {
        let text = without_break(text);
        let label = charset.label(name, &charset.encode(text)?);
        words::encode(text, CharsetLabel { charset: *charset, label: &label }, form).map(|word| word + "\n")
    };
    match encode.form {
        Target::Word => word(words::Form::B).ok_or_else(lacks),
        Target::QWord => word(words::Form::Q).ok_or_else(lacks),
        Target::Base64 => {
            let octets = charset.encode(text).ok_or_else(lacks)?;
            let all = transfer::base64(&octets);
            let lines: Vec<&str> =
                all.as_bytes().chunks(76).filter_map(|line| std::str::from_utf8(line).ok()).collect();
            Ok(lines.join("\n") + "\n")
        }
        Target::QuotedPrintable => {
            let octets = charset.encode(text).ok_or_else(lacks)?;
            let (mut writer, mut out) = (QuotedPrintable::default(), Vec::new());
            for line in without_line_end(&octets).split(|b| *b == b'\n') {
                writer.push(line.strip_suffix(b"\r").unwrap_or(line), &mut out);
                writer.end_line(&mut out);
            }
            Ok(String::from_utf8_lossy(&out).replace("\r\n", "\n"))
        }
    }
}

fn without_break(text: &str) -> &str {
    text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text))
}

fn shortened(text: &str) -> String {
    printable(text.lines().next().unwrap_or_default(), 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str) -> String {
        let all = DecodeArgs { text: Vec::new(), form: None, charset: None, lines: false, json: false };
        all.shown(text.as_bytes())
    }

    #[test]
    fn base64_of_chinese() {
        assert_eq!(
            decode("6K+35p+l5pS277yB"),
            "encoding  base64\ncharset   utf-8 (guessed)\ntext      请查收！\n\
             code      U+8BF7 U+67E5 U+6536 U+FF01\nscripts   Han 3\n"
        );
    }

    #[test]
    fn the_charset_has_the_name_that_it_was_asked_for_by() {
        let word = |name: &str, text: &str| {
            let encode = EncodeArgs { text: Vec::new(), form: Target::Word, charset: label(name).unwrap() };
            encoded(&encode, text.as_bytes()).unwrap()
        };
        assert_eq!(word("gb2312", "请"), "=?gb2312?B?x+s=?=\n");
        assert_eq!(word("iso-8859-1", "é"), "=?iso-8859-1?B?6Q==?=\n");
        assert_eq!(word("utf-8", "é"), "=?UTF-8?B?w6k=?=\n");
        // A character that GB2312 lacks.
        assert_eq!(word("gb2312", "請"), "=?GBK?B?1Yg=?=\n");
        assert_eq!(word("iso-8859-1", "€"), "=?windows-1252?B?gA==?=\n");
    }

    #[test]
    fn nothing_moves_the_cursor() {
        let text = decode("=?utf-8?q?=1B[2J=E2=80=AE=07?= =?\u{1b}?q?a?=");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}'), "{text:?}");
        assert!(text.contains("U+001B") && text.contains("U+202E"), "{text}");
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let gbk = Charset::named(b"gbk").unwrap();
        for (form, charset) in [
            (Target::Word, gbk),
            (Target::QWord, gbk),
            (Target::Base64, Charset::UTF_8),
            (Target::QuotedPrintable, Charset::UTF_8),
        ] {
            let charset = Label { charset, name: charset.name().to_owned() };
            let encode = EncodeArgs { text: Vec::new(), form, charset };
            let encoded = encoded(&encode, "请查收！ =ok\n".as_bytes()).unwrap();
            assert_eq!(
                Reading::of(without_line_end(encoded.as_bytes()), None, None).text.trim_end(),
                "请查收！ =ok",
                "{encoded}"
            );
        }
        let encode = EncodeArgs { text: Vec::new(), form: Target::Base64, charset: label("koi8-r").unwrap() };
        assert_eq!(encoded(&encode, "请".as_bytes()), Err("请 cannot be encoded in KOI8-R".to_owned()));
    }
}
