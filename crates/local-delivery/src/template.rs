//! Configured texts with placeholders for parts of the envelope: `${user}` and others; `$${` is a literal `${`.
//!
//! Promise: a placeholder's value is inserted literally: it cannot add a placeholder, an argument or an option. In a
//! path it is exactly one component, in lower case. In an argument, which may also be a path, user, extension and
//! domain are one component or empty; whole addresses may contain `/`, as some forwarders' do (SRS), but cannot lead
//! out of a folder ([`is_escape`]). An argument that would begin with `-` because of a value is refused.

use crate::recipient::{DeliveryEnvelope, Field};

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

/// A parsed text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

/// Why a text is not a valid template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error(
        "`${{{0}}}` is unknown; use ${{sender}}, ${{recipient}}, ${{original_recipient}}, ${{user}}, ${{extension}} \
         or ${{domain}}"
    )]
    Unknown(String),
    #[error("`${{` without `}}`")]
    Open,
}

/// A value of the envelope does not fit a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnfitValue {
    #[error("cannot be part of a file name")]
    Path,
    #[error("would be read as an option")]
    Option,
    #[error("could leave its folder")]
    Escape,
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

    /// A text without placeholders, whatever it contains.
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

    /// Whether the template itself begins with `-`.
    fn is_option(&self) -> bool {
        matches!(self.0.first(), Some(Part::Text(text)) if text.starts_with('-'))
    }

    /// Expands to one argument of a command.
    pub fn argument(&self, envelope: &DeliveryEnvelope<'_>) -> Result<String, UnfitValue> {
        let is_unfit = |part: &Part| match part {
            Part::Text(_) => false,
            Part::Field(field) => is_unfit(*field, envelope.field(*field)),
        };
        if self.0.iter().any(is_unfit) {
            return Err(UnfitValue::Escape);
        }
        let text: String = self.0.iter().map(|part| value(part, envelope)).collect();
        if text.starts_with('-') && !self.is_option() {
            return Err(UnfitValue::Option);
        }
        Ok(text)
    }

    /// Expands to a path: each value is one component, or a part of one.
    pub fn path(&self, envelope: &DeliveryEnvelope<'_>) -> Result<String, UnfitValue> {
        let mut path = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Field(_) => {
                    let value = value(part, envelope).to_lowercase();
                    if !is_component(&value) {
                        return Err(UnfitValue::Path);
                    }
                    path.push_str(&value);
                }
            }
        }
        Ok(path)
    }
}

/// Whether a value is a valid name of a file in a folder, and not a hidden one.
fn is_component(value: &str) -> bool {
    !value.is_empty() && !value.starts_with('.') && !value.contains(['/', '\0'])
}

/// Whether this value could lead a program to another folder if it is used in a path.
fn is_unfit(field: Field, value: &str) -> bool {
    match field {
        Field::User | Field::Extension | Field::Domain => !value.is_empty() && !is_component(value),
        Field::Sender | Field::Recipient | Field::OriginalRecipient => is_escape(value),
    }
}

/// Whether an address is an absolute path, or has a component that leads upwards, with or without quotes.
fn is_escape(address: &str) -> bool {
    let is_upwards = |component: &str| matches!(component.trim_matches('"'), "." | "..");
    let has_slash = address.contains('/');
    address.contains('\0')
        || has_slash && (address.trim_start_matches('"').starts_with('/') || address.split('/').any(is_upwards))
}

/// A value for a program's environment, with `_` in place of characters that are unfit in an argument.
pub fn without_escape(field: Field, value: &str) -> String {
    if !is_unfit(field, value) {
        return value.to_owned();
    }
    let plain = value.replace(['/', '\0'], "_");
    match plain.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None => plain,
    }
}

fn value<'a>(part: &'a Part, envelope: &DeliveryEnvelope<'a>) -> &'a str {
    match part {
        Part::Text(text) => text,
        Part::Field(field) => envelope.field(*field),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recipient::LocalRecipient;

    fn to(local: &str) -> LocalRecipient {
        let text = format!("{local}@example.org");
        LocalRecipient::new(&text.parse().unwrap(), None, Some('+'))
    }

    fn argument(template: &str, recipient: &LocalRecipient) -> Result<String, UnfitValue> {
        Template::parse(template).unwrap().argument(&DeliveryEnvelope {
            sender: "s@x.org",
            recipient,
            is_marked: false,
        })
    }

    fn path(template: &str, recipient: &LocalRecipient) -> Result<String, UnfitValue> {
        Template::parse(template).unwrap().path(&DeliveryEnvelope { sender: "s@x.org", recipient, is_marked: false })
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
        assert_eq!(argument("${user}", &to("\"a b;rm -rf x\"")).as_deref(), Ok("a b;rm -rf x"));
    }

    #[test]
    fn no_value_becomes_an_option() {
        assert_eq!(argument("${user}", &to("-rf")), Err(UnfitValue::Option));
        assert_eq!(argument("${extension}${user}", &to("-rf")), Err(UnfitValue::Option));
        assert_eq!(argument("-f${user}", &to("-rf")).as_deref(), Ok("-f-rf"));
        assert_eq!(argument("to=${user}", &to("-rf")).as_deref(), Ok("to=-rf"));
    }

    #[test]
    fn no_argument_leads_out_of_a_folder() {
        for bad in [
            "\"../../../evil\"",
            "\"..\"",
            "\".\"",
            "\".x\"",
            "\"a/b\"",
            "\"/etc/x\"",
            "\"../a\"",
            "\"a/../b\"",
            "\"x/\"",
        ] {
            for template in ["${user}", "/v/${user}", "--box=${user}/new", "x${user}"] {
                assert_eq!(argument(template, &to(bad)), Err(UnfitValue::Escape), "{template} {bad}");
            }
        }
        let extension = |local: &str| argument("/v/${extension}", &to(local));
        for bad in ["\"bob+../x\"", "\"bob+/x\"", "\"bob+.x\"", "\"bob+a/b\""] {
            assert_eq!(extension(bad), Err(UnfitValue::Escape), "{bad}");
        }
        assert_eq!(extension("bob").as_deref(), Ok("/v/"), "without an extension");
        assert_eq!(extension("\"bob+a.b..c\"").as_deref(), Ok("/v/a.b..c"));
        // Whole addresses may contain a slash.
        for (local, is_good) in [
            ("SRS0=1/br=JM=a.test=joe", true),
            ("bob+a/b=c.test", true),
            ("\"../../evil\"", false),
            ("\"a/../b\"", false),
            ("\"a/..\"", true),
            ("\"/etc/passwd\"", false),
            ("/etc/passwd", false),
            ("a/./b", false),
        ] {
            for field in ["recipient", "original_recipient"] {
                let taken = argument(&format!("${{{field}}}"), &to(local));
                assert_eq!(taken.is_ok(), is_good, "{field} {local}: {taken:?}");
            }
            let (sender, recipient) = (format!("{local}@x.org"), to("bob"));
            let envelope = DeliveryEnvelope { sender: &sender, recipient: &recipient, is_marked: false };
            assert_eq!(Template::parse("${sender}").unwrap().argument(&envelope).is_ok(), is_good, "sender {local}");
        }
    }

    #[test]
    fn the_environment_has_no_way_out_either() {
        for (field, value, expected) in [
            (Field::User, "bob", "bob"),
            (Field::User, "../../evil", "_._.._evil"),
            (Field::User, ".ssh", "_ssh"),
            (Field::Extension, "a/b", "a_b"),
            (Field::Extension, "", ""),
            (Field::Sender, "SRS0=1/br=x@y", "SRS0=1/br=x@y"),
            (Field::Sender, "\"../x\"@y", "\".._x\"@y"),
            (Field::Recipient, "/etc/x@y", "_etc_x@y"),
        ] {
            assert_eq!(without_escape(field, value), expected, "{field:?} {value}");
        }
    }

    #[test]
    fn paths_stay_where_they_are() {
        assert_eq!(path("/v/${domain}/${user}/", &to("Bob+x")).as_deref(), Ok("/v/example.org/bob/"));
        for bad in ["\"..\"", "\".\"", "\".x\"", "\"a/b\"", "\"../a\"", "\"\""] {
            assert_eq!(path("/v/${user}", &to(bad)), Err(UnfitValue::Path), "{bad}");
        }
        assert_eq!(path("/v/${extension}", &to("bob")), Err(UnfitValue::Path), "it is empty");
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "\\PC{0,40}", local in "[ -~]{0,20}") {
            let quoted = local.replace(['\\', '"'], "");
            if let (Ok(template), Ok(address)) = (Template::parse(&text), format!("\"{quoted}\"@x.org").parse()) {
                let recipient = LocalRecipient::new(&address, None, Some('+'));
                let envelope = DeliveryEnvelope { sender: "", recipient: &recipient, is_marked: false };
                let _ = template.argument(&envelope);
                if let Ok(path) = template.path(&envelope) {
                    // A value adds no component.
                    prop_assert_eq!(path.matches('/').count(), text.matches('/').count());
                }
            }
        }
    }
}
