//! What rules change in the message of `--message`: header fields and transfer encodings.
//!
//! Promise: an edit is reported only if it changes a field that the stored message has, a conversion only if it changes
//! a part. The message is read once; its header fields are kept in memory.

use stentor_mail::headers::LEFT_OUT;
use stentor_mime::field::{Edit, Section, Token};
use stentor_mime::recode::{RecodeTarget, Survey};
use stentor_rules::{ActionRemark, FieldEdit, Marks};

/// Reads a stored message in pieces.
#[derive(Debug)]
pub(super) struct MessageChanges {
    section: Section,
    /// Name and value of each field.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    surveys: Vec<(RecodeTarget, Survey)>,
}

impl MessageChanges {
    /// `may_recode`: rules may demand a transfer encoding.
    pub fn new(may_recode: bool) -> MessageChanges {
        let targets: &[RecodeTarget] = if may_recode { &[RecodeTarget::SevenBit, RecodeTarget::EightBit] } else { &[] };
        let surveys = targets.iter().map(|target| (*target, Survey::new(*target))).collect();
        MessageChanges { section: Section::bare(), fields: Vec::new(), surveys }
    }

    pub fn push(&mut self, octets: &[u8]) {
        self.surveys.iter_mut().for_each(|(_, survey)| survey.push(octets));
        let fields = &mut self.fields;
        self.section.push(octets, &mut |token| match token {
            Token::Name { octets, name } => fields.push((octets[..name].to_owned(), Vec::new())),
            Token::Value(octets) => {
                if let Some((_, value)) = fields.last_mut() {
                    value.extend_from_slice(octets);
                }
            }
            Token::Mbox(_) | Token::Empty(_) | Token::Body(_) => {}
        });
    }

    /// Drops edits and conversions that change nothing, and returns the result of a conversion in words.
    pub fn apply(self, marks: &mut Marks) -> Option<String> {
        marks.edits = self.effective(std::mem::take(&mut marks.edits));
        let wanted = marks.transfer_encoding.take()?;
        let (target, survey) = self.surveys.into_iter().find(|(target, _)| *target == wanted)?;
        let to = target.name();
        match survey.finish() {
            Ok((Some(_), stayed)) => Some(ActionRemark::Recoded { to, stayed }.to_string()),
            Ok((None, 0)) => None,
            Ok((None, stayed)) => Some(ActionRemark::StaysEncoded { to, stayed }.to_string()),
            Err(why) => Some(format!("unchanged, not in transfer encoding {to}: {why}")),
        }
    }

    /// The edits that change a field. The first one that applies to a field counts, as in the server.
    fn effective(&self, edits: Vec<FieldEdit>) -> Vec<FieldEdit> {
        let mut has_changed = vec![false; edits.len()];
        // Fields that are never stored cannot be edited.
        let is_stored = |name: &[u8]| !LEFT_OUT.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()));
        for (name, value) in self.fields.iter().filter(|(name, _)| is_stored(name)) {
            let all = edits.iter().map(|edit| edit.of(name, value)).enumerate();
            if let Some((at, edit)) = all.into_iter().find(|(_, edit)| *edit != Edit::None) {
                has_changed[at] |= !edit.is_same(value);
            }
        }
        edits.into_iter().zip(has_changed).filter_map(|(edit, has_changed)| has_changed.then_some(edit)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(message: &str, mut marks: Marks) -> (Vec<String>, Option<String>) {
        let mut changes = MessageChanges::new(true);
        message.as_bytes().chunks(5).for_each(|piece| changes.push(piece));
        let words = changes.apply(&mut marks);
        (marks.edits.iter().map(ToString::to_string).collect(), words)
    }

    #[test]
    fn only_edits_of_fields_that_the_message_has_remain() {
        let removal = |text: &str| FieldEdit::removal(text).unwrap();
        let replacement = |text: &str| FieldEdit::replacement(text).unwrap();
        let edits = vec![
            removal("X-Spam"),
            removal("X-Other: no"),
            replacement("Subject: /^(.*)$/ [x] $1"),
            // Not reached: the edit before applies to the only Subject.
            replacement("Subject: /offer/ letter"),
            replacement("X-Same: /^same$/ same"),
            replacement("X-None: /a/ b"),
            removal("Bcc"),
        ];
        let message = "x-spam: yes,\r\n very\r\nX-Other: good\r\nSubject: offer\r\nX-Same: same\r\nBcc: \
            a@x.example\r\n\r\n\
                       X-None: a\r\n";
        let (kept, words) = applied(message, Marks { edits, ..Marks::default() });
        assert_eq!(kept, ["X-Spam", "Subject: /^(.*)$/ [x] $1"]);
        assert_eq!(words, None);
    }

    #[test]
    fn a_conversion_is_reported_by_its_result() {
        let of = |target, message: &str| {
            applied(message, Marks { transfer_encoding: Some(target), ..Marks::default() }).1.unwrap_or_default()
        };
        let encoded = "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
                       Content-Transfer-Encoding: quoted-printable\r\n\r\nGr=C3=BC=C3=9Fe\r\n";
        let plain = "Subject: x\r\n\r\nbody\r\n";
        assert_eq!(of(RecodeTarget::EightBit, encoded), "in transfer encoding 8bit");
        assert_eq!(of(RecodeTarget::SevenBit, encoded), "");
        assert_eq!(of(RecodeTarget::EightBit, plain), "");
        assert_eq!(of(RecodeTarget::SevenBit, plain), "");
        let cannot = of(RecodeTarget::SevenBit, "To: \u{e9}@x.example\r\n\r\nbody\r\n");
        assert!(cannot.starts_with("unchanged, not in transfer encoding 7bit: 8-bit characters"), "{cannot}");
    }
}
