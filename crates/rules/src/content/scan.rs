//! Runs all tests over one message while it streams by.
//!
//! Text is searched in windows of [`WINDOW_BYTES`] that overlap by at least [`OVERLAP_BYTES`]: a match may have that
//! length. All other memory is that of a [`Walker`]. If a message exceeds the walker's limits for levels or field
//! lengths, the rest is searched as plain text; rules can test for such [`Defect`]s.

use std::collections::HashSet;
use std::sync::Arc;

use stentor_mime::charset::Charset;
use stentor_mime::html::{Html, has_invisible, is_invisible};
use stentor_mime::params::ParamName;
use stentor_mime::scripts::Scripts;
use stentor_mime::walk::{Defect, Part, Visitor, Walker};
use stentor_mime::words;

use super::auth::AuthFieldResults;
use super::hits::Hits;
use super::matcher::Matcher;

/// Size of a window of decoded text.
const WINDOW_BYTES: usize = 64 * 1024;
/// Approximate maximum memory of a scan: a window, a header field and the parts around the current one.
pub const SCAN_BYTES_MAX: u64 = 384 * 1024;
/// Size of the overlap of two windows.
const OVERLAP_BYTES: usize = 4 * 1024;
/// Maximum charset names remembered, so that they are not searched again.
const CHARSETS_MAX: usize = 256;
/// Octets before the overlap in which the next window may begin.
const BEGIN_BYTES: usize = 2 * 1024;

/// State of a scan.
pub struct ContentScanner {
    walker: Walker,
    search: Search,
    /// Octets before the message, added by us.
    skip: usize,
}

impl ContentScanner {
    /// Starts a scan. The first `skip` octets are not part of the message. `is_shown`: the matched texts are
    /// recorded.
    pub fn new(matcher: Arc<Matcher>, skip: usize, is_shown: bool) -> ContentScanner {
        let hits = Hits::new(matcher.tests, is_shown);
        let search = Search {
            matcher,
            hits,
            source: String::new(),
            shown: String::new(),
            html: Html::default(),
            scripts: Scripts::default(),
            charsets: HashSet::new(),
            name: String::new(),
            auth: None,
        };
        ContentScanner { walker: Walker::new(), search, skip }
    }

    /// Also collects authentication results from the message.
    #[must_use]
    pub fn with_auth(mut self, id: &str) -> ContentScanner {
        self.search.auth = Some(AuthFieldResults::new(id));
        self
    }

    /// Scans the next octets.
    pub fn push(&mut self, octets: &[u8]) {
        let ours = self.skip.min(octets.len());
        self.skip -= ours;
        if !self.has_too_many_parts() {
            self.walker.push(&octets[ours..], &mut self.search);
        }
    }

    /// Whether the message has too many parts: the last ones are not searched.
    pub fn has_too_many_parts(&self) -> bool {
        self.walker.has_too_many_parts()
    }

    /// Ends the scan; returns the matching tests.
    pub fn finish(mut self) -> Hits {
        self.walker.finish(&mut self.search);
        self.search.weigh_scripts();
        let Search { matcher, mut hits, auth, .. } = self.search;
        if let Some(auth) = auth {
            matcher.match_auth(&auth, &mut hits);
        }
        hits
    }
}

struct Search {
    matcher: Arc<Matcher>,
    hits: Hits,
    /// Windows of a part's text: its source, and the visible text if that differs.
    source: String,
    shown: String,
    html: Html,
    scripts: Scripts,
    /// Charset names that have been searched.
    charsets: HashSet<Box<str>>,
    /// Name of the current field, in lower case.
    name: String,
    auth: Option<AuthFieldResults>,
}

impl Visitor for Search {
    fn field(&mut self, path: &[u32], name: &[u8], value: &[u8], fallback: Charset) {
        let matcher = self.matcher.clone();
        let is_own = path.is_empty();
        let wants_words = !(matcher.charsets.is_empty() && matcher.defects.is_empty());
        if !is_own {
            // In fields of parts, only encoded words matter.
            if wants_words && words::is_encoded(value) {
                self.note_words(path, &words::decode(&words::unfolded(value), fallback));
            }
            return;
        }
        if let Some(auth) = &mut self.auth {
            auth.field(name, value);
        }
        self.name.clear();
        // Names are printable ASCII.
        self.name.push_str(std::str::from_utf8(name).unwrap_or_default());
        self.name.make_ascii_lowercase();
        let mut raw = matcher.raw_headers.of(&self.name).peekable();
        if raw.peek().is_some() {
            let value = String::from_utf8_lossy(value.trim_ascii());
            raw.for_each(|set| set.search(&value, &mut self.hits));
        }
        let is_read = !matcher.scripts.is_empty() && matches!(self.name.as_str(), "subject" | "from");
        let searched = matcher.headers.of(&self.name);
        if !(is_read || searched.clone().next().is_some() || wants_words && words::is_encoded(value)) {
            return;
        }
        let unfolded = words::unfolded(value);
        let decoded;
        let text = if let Some(text) = words::as_text(&unfolded) {
            text
        } else {
            decoded = words::decode(&unfolded, fallback);
            self.note_words(path, &decoded);
            &decoded.text
        };
        let has_invisible = has_invisible(text);
        for set in searched {
            set.search(text, &mut self.hits);
            if has_invisible {
                set.search(&text.replace(is_invisible, ""), &mut self.hits);
            }
        }
        if is_read {
            self.scripts.add(text);
        }
    }

    fn part(&mut self, part: &Part) {
        if self.matcher.charsets.is_empty() {
            return;
        }
        let fields = [Some(&part.content_type), part.disposition.as_ref()];
        for charset in fields.into_iter().flatten().flat_map(|field| &field.other_charsets) {
            self.named(charset);
        }
        for param in fields.into_iter().flatten().flat_map(|field| &field.params) {
            if let Some(charset) = &param.charset {
                self.named(charset);
            }
            if param.name == ParamName::Charset {
                self.named(&String::from_utf8_lossy(&param.octets).to_ascii_lowercase());
            }
        }
    }

    fn charset(&mut self, _: &Part, label: &str) {
        self.named(label);
    }

    fn text(&mut self, part: &Part, text: &str) {
        let wants_text = !self.matcher.body.is_empty() && !self.matcher.body.is_done(&self.hits);
        if !wants_text && self.matcher.scripts.is_empty() {
            return;
        }
        let counts_letters = !self.matcher.scripts.is_empty();
        if part.is_html() {
            let from = self.shown.len();
            self.html.push(text, &mut self.shown);
            if counts_letters {
                self.scripts.add(&self.shown[from..]);
            }
        } else if counts_letters {
            self.scripts.add(text);
        }
        if wants_text {
            if !part.is_html() {
                self.show_plain(text);
            }
            self.source.push_str(text);
        }
        self.search_windows(wants_text, WINDOW_BYTES);
    }

    fn end(&mut self, part: &Part, size: u64) {
        self.html.finish(&mut self.shown);
        self.search_windows(true, 1);
        self.source.clear();
        self.shown.clear();
        if part.is_attachment() {
            self.attachment(&part.names, &part.content_type.value, size);
        }
    }

    fn file(&mut self, _: &Part, name: &str, size: u64) {
        self.attachment(&[name.to_owned()], "application/octet-stream", size);
    }

    fn defect(&mut self, _: &[u32], defect: Defect) {
        for (test, wanted) in &self.matcher.defects {
            if wanted.is_none_or(|wanted| wanted == defect) {
                self.hits.add(*test, || defect.name().to_owned());
            }
        }
    }
}

impl Search {
    /// Searches windows of at least this size, and keeps the overlap for the next.
    fn search_windows(&mut self, wants_text: bool, least: usize) {
        for window in [&mut self.source, &mut self.shown] {
            if window.len() < least {
                continue;
            }
            if wants_text {
                self.matcher.body.search(window, &mut self.hits);
            }
            let cut = cut(window);
            window.drain(..cut);
        }
    }

    /// Collects the visible text separately from the first invisible character on.
    fn show_plain(&mut self, text: &str) {
        let has_invisible = has_invisible(text);
        if self.shown.is_empty() && has_invisible {
            self.shown.push_str(&self.source);
        }
        if !self.shown.is_empty() || has_invisible {
            text.split(is_invisible).for_each(|visible| self.shown.push_str(visible));
        }
    }

    fn attachment(&mut self, names: &[String], content_type: &str, size: u64) {
        for files in &self.matcher.files {
            if files.is_met(names, content_type, size) {
                self.hits.add(files.test, || format!("{names:?}, {content_type}, {size} octets"));
            }
        }
    }

    /// Records the charsets and defects of a field's encoded words.
    fn note_words(&mut self, path: &[u32], decoded: &words::Decoded) {
        if decoded.is_broken {
            self.defect(path, Defect::Word);
        }
        for charset in &decoded.charsets {
            self.named(charset);
        }
    }

    fn named(&mut self, label: &str) {
        let label = label.trim();
        if self.matcher.charsets.is_empty() || self.charsets.contains(label) {
            return;
        }
        self.matcher.charsets.search(label, &mut self.hits);
        if self.charsets.len() < CHARSETS_MAX {
            self.charsets.insert(label.into());
        }
    }

    fn weigh_scripts(&mut self) {
        let total = self.scripts.total();
        for (test, script, percent) in &self.matcher.scripts {
            let count = self.scripts.has(*script);
            if count > 0 && count * 100 >= total * u64::from(*percent) {
                self.hits.add(*test, || format!("{count} of {total} letters"));
            }
        }
    }
}

/// Start of the next window: at a line start or after white space, so that no word is cut.
fn cut(window: &str) -> usize {
    let from = window.floor_char_boundary(window.len().saturating_sub(OVERLAP_BYTES + BEGIN_BYTES));
    let begins = &window[from..window.floor_char_boundary(from + BEGIN_BYTES)];
    let at = begins.find('\n').or_else(|| begins.find(char::is_whitespace));
    at.map_or(from, |at| from + at + begins[at..].chars().next().map_or(0, char::len_utf8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_overlap_by_what_a_match_may_span() {
        let text = "x".repeat(WINDOW_BYTES);
        for (from_end, space) in [(OVERLAP_BYTES - 1_000, "\n"), (OVERLAP_BYTES + 1_000, "\u{3000}"), (0, "\n")] {
            let (before, behind) = text.split_at(WINDOW_BYTES - from_end);
            let window = format!("{before}{space}{behind}");
            let cut = cut(&window);
            assert!(window.len() - cut >= OVERLAP_BYTES, "{from_end}: {}", window.len() - cut);
            assert_eq!(window[..cut].ends_with(space), from_end == OVERLAP_BYTES + 1_000, "{from_end}");
        }
        // If no line ends there, the cut is at a word.
        let window = format!("{}, {}\n{}", "x".repeat(60_000), "y".repeat(3_500), "z".repeat(2_000));
        assert!(window[cut(&window)..].starts_with('y'));
    }
}
