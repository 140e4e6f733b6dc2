//! Changes of milters to a message's envelope, parsed as in SMTP.

use stentor_mail::address::ReversePath;
use stentor_smtp::server::{MailFrom, RcptTo};

use crate::connection::MilterFailure;
use crate::protocol::Change;

/// Maximum octets shown of a reason or address.
const SHOWN_BYTES_MAX: usize = 200;

/// A recipient that is added or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecipientChange {
    Add(RcptTo),
    /// Removal of a recipient, as named by the client.
    Delete(RcptTo),
}

/// Changes to an envelope; see the module documentation.
#[derive(Debug, Default)]
pub struct EnvelopeChanges {
    pub sender: Option<ReversePath>,
    /// Recipients, in the order of the requests.
    pub recipients: Vec<RecipientChange>,
    /// Why the message is quarantined; in the final result the milter's name precedes it.
    pub quarantine: Option<String>,
}

impl EnvelopeChanges {
    /// Adds a change; changes to other parts are ignored.
    pub(crate) fn take(&mut self, change: &Change, hostname: &str) -> Result<(), MilterFailure> {
        match change {
            Change::AddRecipient { to, params } => {
                self.recipients.push(RecipientChange::Add(recipient(to, params, hostname)?));
            }
            Change::DeleteRecipient(to) => self.recipients.push(RecipientChange::Delete(recipient(to, b"", hostname)?)),
            Change::Sender { from, params } => {
                let utf8: &[u8] = if from.is_ascii() { b"" } else { b" SMTPUTF8" };
                let argument = [&argument(from, params, hostname), utf8].concat();
                let mail = MailFrom::parse(&argument, u64::MAX).map_err(|_| unusable("sender", from))?;
                self.sender = Some(mail.path);
            }
            Change::Quarantine(reason) => self.quarantine = Some(shown(reason)),
            _ => {}
        }
        Ok(())
    }
}

fn recipient(to: &[u8], params: &[u8], hostname: &str) -> Result<RcptTo, MilterFailure> {
    RcptTo::parse(&argument(to, params, hostname), true, hostname).map_err(|_| unusable("recipient", to))
}

/// Formats the argument of `MAIL FROM:`; milters may omit the angle brackets, and the domain if it is ours.
fn argument(address: &[u8], params: &[u8], hostname: &str) -> Vec<u8> {
    let address = address.trim_ascii();
    let bare = address.strip_prefix(b"<").and_then(|bare| bare.strip_suffix(b">")).unwrap_or(address);
    let domain = if bare.is_empty() || bare.contains(&b'@') { String::new() } else { format!("@{hostname}") };
    [b"<", bare, domain.as_bytes(), b"> ", params.trim_ascii()].concat()
}

fn unusable(what: &str, text: &[u8]) -> MilterFailure {
    MilterFailure::broken(format!("it requested an invalid {what}, or unknown parameters: {:?}", shown(text)))
}

/// A milter's text for people: of bounded length, on one line.
pub(crate) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES_MAX)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(change: &Change) -> Option<EnvelopeChanges> {
        let mut envelope = EnvelopeChanges::default();
        envelope.take(change, "mx.test").ok().map(|()| envelope)
    }

    #[test]
    fn addresses_are_read_as_smtp_reads_them() {
        let add = |to: &str, params: &str| {
            let change = Change::AddRecipient { to: to.into(), params: params.into() };
            match taken(&change)?.recipients.pop()? {
                RecipientChange::Add(rcpt) => {
                    Some((rcpt.address.as_str().to_owned(), rcpt.notify.map(stentor_smtp::server::Notify::bits)))
                }
                RecipientChange::Delete(_) => None,
            }
        };
        assert_eq!(add("<a@x.test>", ""), Some(("a@x.test".to_owned(), None)));
        assert_eq!(add("a@x.test", "NOTIFY=NEVER"), Some(("a@x.test".to_owned(), Some(1))));
        assert_eq!(add("root", ""), Some(("root@mx.test".to_owned(), None)));
        for (to, params) in
            [("", ""), ("a@x.test> <b@x.test", ""), ("a@x.test", "X=Y"), ("a b@x.test", ""), ("a@x.test\r\nDATA", "")]
        {
            assert_eq!(add(to, params), None, "{to} {params}");
        }
        let sender = |from: &str| taken(&Change::Sender { from: from.into(), params: Vec::new() })?.sender;
        assert_eq!(sender("<>"), Some(ReversePath::Null));
        assert_eq!(sender("b@x.test").unwrap().as_str(), "b@x.test");
        assert_eq!(sender("<b@x.test"), None);
        let reason = taken(&Change::Quarantine(b"spam\r\nhigh".to_vec())).unwrap().quarantine;
        assert_eq!(reason.as_deref(), Some("spam  high"));
    }
}
