//! Rule conditions on a message's content: header fields, texts, charsets, scripts, attachments, authentication
//! results.

use stentor_rules::{AuthTest, ContentConditionError, ContentConditions, Pattern, Test, unlikely};

use super::raw::Section;

/// Maximum patterns under one key of a rule.
pub(super) const PATTERNS_MAX: usize = 1_000;

/// Prefix of a table name among envelope patterns.
pub(super) const TABLE: &str = "table:";

/// Upper limit of attachment sizes in octets.
const BYTES_MAX: u64 = 1 << 40;

/// Reads one pattern.
type PatternReader = fn(&str) -> Result<Test, ContentConditionError>;

const KEYS: [(&str, PatternReader); 8] = [
    ("header", |text| Test::header(text, false)),
    ("raw_header", |text| Test::header(text, true)),
    ("subject", Test::subject),
    ("body", |text| Pattern::contained(text).map(Test::Body)),
    ("charset", |text| Pattern::name(text).map(Test::Charset)),
    ("script", Test::script),
    ("malformed", Test::malformed),
    ("auth", |text| AuthTest::parse(text).map(Test::Auth)),
];

pub(super) fn read(section: &Section<'_>, content: &mut ContentConditions) {
    for (key, parse) in KEYS {
        content.add(key, patterns(section, key, parse));
    }
    let names = patterns(section, "attachment", Pattern::name);
    let types = patterns(section, "attachment_type", Pattern::name);
    let least = section.number("attachment_min_bytes", 0, 0..=BYTES_MAX);
    let over = least.checked_sub(1);
    if over.is_some() || !names.is_empty() || !types.is_empty() {
        content.add("attachment", vec![Test::Attachment { names, types, over }]);
    }
}

/// Whether a pattern, with or without a header field in front, is written as a table reference, which only envelope
/// conditions allow.
fn names_table(key: &str, pattern: &str) -> bool {
    let behind =
        if key.ends_with("header") { pattern.split_once(':').map_or("", |(_, text)| text.trim_start()) } else { "" };
    [pattern, behind]
        .iter()
        .any(|text| text.strip_prefix(TABLE).is_some_and(|name| !name.is_empty() && !name.starts_with(' ')))
}

fn patterns<T>(
    section: &Section<'_>,
    key: &'static str,
    parse: impl Fn(&str) -> Result<T, ContentConditionError>,
) -> Vec<T> {
    let context = section.context;
    let texts = section.texts(key).unwrap_or_default();
    if let Some(text) = texts.get(PATTERNS_MAX) {
        context.error(text.span.clone(), format!("more than {PATTERNS_MAX} patterns"));
    }
    let read = texts.into_iter().filter_map(|text| match parse(text.value) {
        _ if names_table(key, text.value) => {
            let message = format!(
                "rules on content cannot use tables: write a rule for each line of the table \
                 (docs/operate/content-rules.md); `/{TABLE}/` matches this text"
            );
            context.error(text.span, message);
            None
        }
        Ok(read) => {
            if let Some(why) = unlikely(key, text.value) {
                context.warn(text.span, why);
            }
            Some(read)
        }
        Err(error) => {
            context.error(text.span, error.to_string());
            None
        }
    });
    read.collect()
}
