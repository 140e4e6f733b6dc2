//! Texts of the configuration with placeholders for parts of the envelope: `${user}` and others; `$${` is `${`.
//!
//! Promise: a placeholder's value is text, never looked at again: it adds no placeholder, no argument and no option. In a path it
//! is exactly one component, in lower case. An argument that would begin with `-` because of a value is refused.

use crate::recipient::{Envelope, Field};

const FIELDS: [(&str, Field); 6] = [
    ("sender", Field::Sender),
    ("recipient", Field::Recipient),
    ("original_recipient", Field::OriginalRecipient),
    ("user", Field::User),
    ("extension", Field::Extension),
    ("domain", Field::Domain),
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field),
}

/// A text with placeholders, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error(
        "`${{{0}}}` is unknown; there are ${{sender}}, ${{recipient}}, ${{original_recipient}}, ${{user}}, ${{extension}} and ${{domain}}"
    )]
    Unknown(String),
    #[error("`${{` without `}}`")]
    Open,
}

/// The envelope does not fit where its value is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("cannot be part of a file's name")]
    Path,
    #[error("would be read as an option")]
    Option,
}

impl Template {
    pub fn parse(text: &str) -> Result<Template, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                parts.push(Part::Text(format!("{}{{", &rest[..at])));
                rest = &rest[at + 2..];
                continue;
            }
            let inner = &rest[at + 2..];
            let end = inner.find('}').ok_or(TemplateError::Open)?;
            let name = &inner[..end];
            let known = FIELDS.iter().find(|(known, _)| *known == name);
            let (_, field) = known.ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
            if at > 0 {
                parts.push(Part::Text(rest[..at].to_owned()));
            }
            parts.push(Part::Field(*field));
            rest = &inner[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Template(parts))
    }

    /// A text without placeholders, whatever it holds.
    pub fn plain(text: &str) -> Template {
        Template(vec![Part::Text(text.to_owned())])
    }

    /// The text, if it has no placeholder.
    pub fn fixed(&self) -> Option<String> {
        let texts = self.0.iter().map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Field(_) => None,
        });
        texts.collect()
    }

    /// Whether it begins with a `-` of its own.
    fn is_option(&self) -> bool {
        matches!(self.0.first(), Some(Part::Text(text)) if text.starts_with('-'))
    }

    /// One argument of a command.
    pub fn argument(&self, envelope: &Envelope<'_>) -> Result<String, Unfit> {
        let text: String = self.0.iter().map(|part| value(part, envelope)).collect();
        if text.starts_with('-') && !self.is_option() {
            return Err(Unfit::Option);
        }
        Ok(text)
    }

    /// A path: each value is one component, or a part of one.
    pub fn path(&self, envelope: &Envelope<'_>) -> Result<String, Unfit> {
        let mut path = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Field(_) => {
                    let value = value(part, envelope).to_lowercase();
                    if value.is_empty() || value.starts_with('.') || value.contains(['/', '\0']) {
                        return Err(Unfit::Path);
                    }
                    path.push_str(&value);
                }
            }
        }
        Ok(path)
    }
}

fn value<'a>(part: &'a Part, envelope: &Envelope<'a>) -> &'a str {
    match part {
        Part::Text(text) => text,
        Part::Field(field) => envelope.field(*field),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recipient::Recipient;

    fn to(local: &str) -> Recipient {
        let text = format!("{local}@example.org");
        Recipient::new(&text.parse().unwrap(), None, Some('+'))
    }

    fn argument(template: &str, recipient: &Recipient) -> Result<String, Unfit> {
        Template::parse(template).unwrap().argument(&Envelope { sender: "s@x.org", recipient, is_marked: false })
    }

    fn path(template: &str, recipient: &Recipient) -> Result<String, Unfit> {
        Template::parse(template).unwrap().path(&Envelope { sender: "s@x.org", recipient, is_marked: false })
    }

    #[test]
    fn each_placeholder_has_its_value() {
        let recipient = to("Sales+Q3");
        let all = "${sender} ${recipient} ${original_recipient} ${user} ${extension} ${domain}.";
        let wanted = "s@x.org Sales+Q3@example.org Sales+Q3@example.org Sales Q3 example.org.";
        assert_eq!(argument(all, &recipient).as_deref(), Ok(wanted));
        assert_eq!(argument("$user $$ {user} }", &recipient).as_deref(), Ok("$user $$ {user} }"));
    }

    #[test]
    fn a_shells_own_variables_are_written_with_two_dollars() {
        assert_eq!(argument("echo $${user} $${x#${user}}", &to("bob")).as_deref(), Ok("echo ${user} ${x#bob}"));
        let line = Template::parse("echo $${x}").unwrap();
        assert_eq!(line.fixed().as_deref(), Some("echo ${x}"));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(Template::parse("a${size}"), Err(TemplateError::Unknown("size".to_owned())));
        assert_eq!(Template::parse("${user"), Err(TemplateError::Open));
    }

    #[test]
    fn a_value_is_not_read_again() {
        assert_eq!(argument("${user}", &to("\"${sender}\"")).as_deref(), Ok("${sender}"));
        assert_eq!(argument("${user}", &to("\"a b;rm -rf /\"")).as_deref(), Ok("a b;rm -rf /"));
    }

    #[test]
    fn no_value_becomes_an_option() {
        assert_eq!(argument("${user}", &to("-rf")), Err(Unfit::Option));
        assert_eq!(argument("${extension}${user}", &to("-rf")), Err(Unfit::Option));
        assert_eq!(argument("-f${user}", &to("-rf")).as_deref(), Ok("-f-rf"));
        assert_eq!(argument("to=${user}", &to("-rf")).as_deref(), Ok("to=-rf"));
    }

    #[test]
    fn paths_stay_where_they_are() {
        assert_eq!(path("/v/${domain}/${user}/", &to("Bob+x")).as_deref(), Ok("/v/example.org/bob/"));
        for bad in ["\"..\"", "\".\"", "\".x\"", "\"a/b\"", "\"../a\"", "\"\""] {
            assert_eq!(path("/v/${user}", &to(bad)), Err(Unfit::Path), "{bad}");
        }
        assert_eq!(path("/v/${extension}", &to("bob")), Err(Unfit::Path), "it is empty");
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "\\PC{0,40}", local in "[ -~]{0,20}") {
            let quoted = local.replace(['\\', '"'], "");
            if let (Ok(template), Ok(address)) = (Template::parse(&text), format!("\"{quoted}\"@x.org").parse()) {
                let recipient = Recipient::new(&address, None, Some('+'));
                let envelope = Envelope { sender: "", recipient: &recipient, is_marked: false };
                let _ = template.argument(&envelope);
                if let Ok(path) = template.path(&envelope) {
                    // A value adds no component.
                    prop_assert_eq!(path.matches('/').count(), text.matches('/').count());
                }
            }
        }
    }
}
