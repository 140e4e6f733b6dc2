//! Parameters of MIME fields: values with octets that are not allowed, or longer than a line may be, as RFC 2231 has
//! them.
//!
//! Promise: who reads parameters as [`crate::params`] does reads the same before and after. What has that form already
//! keeps its charset and language, and is cut and numbered anew. A parameter of which programs may read several things
//! (given in two forms, sections that are missing or come twice, text behind a value) is left as it stands.

use std::collections::{BTreeMap, BTreeSet};

use crate::charset::Charset;
use crate::params::{self, JoinedValue, PARAMS_MAX, RawParameter};
use crate::quoted::escaped;
use crate::words;

use super::Octets;
use super::text::{Needs, fold_if_long};

/// Octets of a value in one section; each takes up to three on the line. Of long values more, since readers look at
/// some [`PARAMS_MAX`] sections.
const SECTION_BYTES_MAX: usize = 200;
const SECTION_BYTES_MAX_OF_LONG: usize = 300;
/// Sections of one parameter.
const SECTIONS_MAX: usize = PARAMS_MAX * 3 / 4;
/// Longest name of a parameter that is written anew, so that its lines stay below 998 octets.
const NAME_BYTES_MAX: usize = 60;

/// A parameter in another form.
struct Form {
    whole: JoinedValue,
    /// `*0=` in place of `*0*=`: octets that readers decode on their own, as those of encoded words.
    is_plain: bool,
}

/// Appends a value.
pub(super) fn write(value: &[u8], octets: Octets, out: &mut Vec<u8>) {
    let all = params::written(value);
    let (mut anew, gone) = plan(value, &all, octets);
    let mut done = 0;
    for (at, param) in all.iter().enumerate() {
        if gone.contains(&at) {
            octets.push(&value[done..param.separator], out);
        } else if let Some(form) = anew.remove(&at) {
            octets.push(&value[done..param.place.start], out);
            if !out.ends_with(b" ") && !out.ends_with(b"\t") {
                out.push(b' ');
            }
            write_form(param.name.base, &form, out);
        } else {
            continue;
        }
        done = param.place.end;
    }
    octets.push(&value[done..], out);
}

/// Which parameters are written anew, and which of their sections are in others then.
fn plan(value: &[u8], all: &[RawParameter<'_>], octets: Octets) -> (BTreeMap<usize, Form>, BTreeSet<usize>) {
    let needs = Needs::of(octets);
    let (mut anew, mut gone) = (BTreeMap::new(), BTreeSet::new());
    let is_too_much = |param: &RawParameter<'_>| needs.encoding_quoted(&value[param.place.clone()]);
    if !all.iter().any(is_too_much) {
        return (anew, gone);
    }
    let mut by_name: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (at, param) in all.iter().enumerate() {
        by_name.entry(param.name.base.to_ascii_lowercase()).or_default().push(at);
    }
    for (base, members) in by_name {
        let is_name = base.len() <= NAME_BYTES_MAX && !base.is_empty() && !needs.encoding(&base);
        // What readers look for as it stands.
        let is_boundary = base == b"boundary" && members.iter().all(|at| all[*at].value.is_ascii());
        let chosen = if is_name && !is_boundary { chosen(all, &members) } else { Vec::new() };
        if !chosen.iter().any(|at| is_too_much(&all[*at])) || chosen.iter().any(|at| all[*at].is_odd) {
            continue;
        }
        let whole = JoinedValue::of(chosen.iter().map(|at| (&*all[*at].value, all[*at].name.is_encoded)));
        // Beside a plain parameter readers prefer what has a charset: it must not get one.
        let is_plain = |at: &usize| all[*at].name.number.is_none() && !all[*at].name.is_encoded;
        if whole.charset.is_none() && !chosen.iter().any(is_plain) && members.iter().any(is_plain) {
            continue;
        }
        let has_others = members.len() > chosen.len();
        if let Some(form) = form(whole, octets).filter(|form| !form.is_plain || !has_others) {
            let first = chosen.iter().copied().min().unwrap_or_default();
            gone.extend(chosen.into_iter().filter(|at| *at != first));
            anew.insert(first, form);
        }
    }
    (anew, gone)
}

/// Of the parameters of one name those that readers prefer, if these are one value: sections in their order, the
/// encoded one, or the only one.
fn chosen(all: &[RawParameter<'_>], members: &[usize]) -> Vec<usize> {
    let is_section = |at: &usize| all[*at].name.number.is_some();
    let mut sections: Vec<usize> = members.iter().copied().filter(is_section).collect();
    let is_encoded = |at: &usize| !is_section(at) && all[*at].name.is_encoded;
    let encoded: Vec<usize> = members.iter().copied().filter(is_encoded).collect();
    sections.sort_by_key(|at| all[*at].name.number);
    let is_without_gap = sections.iter().zip(0..).all(|(at, number)| all[*at].name.number == Some(number));
    match (sections.as_slice(), encoded.as_slice()) {
        ([], []) => members.iter().copied().take(1).collect(),
        ([], [_]) => encoded,
        ([_, ..], []) if is_without_gap => sections,
        _ => Vec::new(),
    }
}

/// The form for a value; `None`: it cannot be written so.
fn form(mut whole: JoinedValue, octets: Octets) -> Option<Form> {
    let mut is_plain = false;
    if let Some((label, language)) = &whole.charset {
        let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:+".contains(b);
        let is_sound = label.iter().chain(language).all(is_token);
        let is_short = label.len() + language.len() <= NAME_BYTES_MAX;
        (is_sound && is_short).then_some(())?;
    } else {
        let decoded = words::is_encoded(&whole.octets).then(|| words::decode(&whole.octets, Charset::UNDECLARED));
        match decoded {
            // Many readers decode such words, against RFC 2047 section 5.
            Some(decoded) if !decoded.is_broken => whole.octets = decoded.text.into_bytes(),
            Some(_) => is_plain = octets.allow(&whole.octets),
            None => {}
        }
        let is_utf_8 = std::str::from_utf8(&whole.octets).is_ok();
        let label: &[u8] = if is_utf_8 { b"utf-8" } else { b"unknown-8bit" };
        whole.charset = Some((label.to_vec(), Vec::new()));
    }
    let is_readable = whole.octets.len() <= SECTION_BYTES_MAX_OF_LONG * SECTIONS_MAX;
    is_readable.then_some(Form { whole, is_plain })
}

/// Sections (RFC 2231 section 3) keep every line far below 998 octets.
fn write_form(base: &[u8], form: &Form, out: &mut Vec<u8>) {
    let Form { whole: JoinedValue { octets, charset }, is_plain } = form;
    let is_long = octets.len() > SECTION_BYTES_MAX * SECTIONS_MAX;
    let section_bytes = if is_long { SECTION_BYTES_MAX_OF_LONG } else { SECTION_BYTES_MAX };
    let sections = sections(octets, section_bytes);
    fold_if_long(out);
    for (index, section) in sections.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b";\r\n ");
        }
        out.extend_from_slice(base);
        if sections.len() > 1 || *is_plain {
            out.extend_from_slice(format!("*{index}").as_bytes());
        }
        if *is_plain {
            out.extend_from_slice(b"=\"");
            write_quoted(section, out);
            out.push(b'"');
            continue;
        }
        out.extend_from_slice(b"*=");
        if let Some((label, language)) = charset.as_ref().filter(|_| index == 0) {
            for part in [label, language] {
                out.extend_from_slice(part);
                out.push(b'\'');
            }
        }
        write_percent(section, out);
    }
}

/// Pieces of a value, of whole characters if it is UTF-8; one at least.
fn sections(octets: &[u8], bytes_max: usize) -> Vec<&[u8]> {
    let (mut all, mut rest) = (Vec::new(), octets);
    loop {
        let at = rest.len().min(bytes_max);
        let inner = rest[..at].iter().rev().take(3).take_while(|b| **b & 0xc0 == 0x80).count();
        // The octets of a character that go on behind the cut belong to the next section, with the one that it begins
        // with.
        let is_inner = rest.get(at).is_some_and(|b| b & 0xc0 == 0x80);
        let begin = at.saturating_sub(inner + 1);
        let at = if is_inner && rest[begin] >= 0xc0 { begin } else { at };
        let (section, behind) = rest.split_at(at);
        all.push(section);
        rest = behind;
        if rest.is_empty() {
            return all;
        }
    }
}

fn write_quoted(text: &[u8], out: &mut Vec<u8>) {
    for &b in text {
        if matches!(b, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(b);
    }
}

fn write_percent(text: &[u8], out: &mut Vec<u8>) {
    for &b in text {
        if b.is_ascii_alphanumeric() || b"-._".contains(&b) {
            out.push(b);
        } else {
            let [_, high, low] = escaped(b);
            out.extend_from_slice(&[b'%', high, low]);
        }
    }
}
