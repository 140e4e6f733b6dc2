//! Standing bounces: mail that an operator bounces for a time, encoded in a suspension's name
//! ([`crate::event::Event::Suspend`]).
//!
//! Promise: a name contains everything but the reason and the end, reads as it was written, and is never the name of a
//! suspension. All given parts must match. None of them contains a space except the sender, which comes last.

use std::fmt;
use std::ops::Range;

use crate::sender::Senders;

const PREFIX: &str = "bounce:";
/// Range that contains the names of all standing bounces, and no others.
pub const NAMES: Range<&str> = PREFIX.."bounce;";

/// A standing bounce; see the module's head.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StandingBounce {
    /// The site's name, as in the scheduler.
    pub site: Option<String>,
    pub list: Option<String>,
    /// A recipient's domain.
    pub domain: Option<String>,
    /// An envelope sender: an address, empty for the null sender, or `@domain`.
    pub sender: Option<String>,
}

impl StandingBounce {
    /// Parses a name. `None`: it is not a standing bounce's, or is of a newer version.
    pub fn of_name(what: &str) -> Option<StandingBounce> {
        let mut rest = what.strip_prefix(PREFIX)?;
        let mut bounce = StandingBounce::default();
        loop {
            let (kind, value) = rest.split_once(':')?;
            if kind == "sender" {
                bounce.sender = Some(value.to_owned());
                return Some(bounce);
            }
            let field = match kind {
                "site" => &mut bounce.site,
                "list" => &mut bounce.list,
                "to" => &mut bounce.domain,
                _ => return None,
            };
            let Some((value, next)) = value.split_once(' ') else {
                *field = Some(value.to_owned());
                return Some(bounce);
            };
            *field = Some(value.to_owned());
            rest = next;
        }
    }

    /// Whether the bounce covers mail of these senders and this list.
    pub fn is_of(&self, senders: Senders<'_>, list: Option<&str>) -> bool {
        let is_sender = self.sender.as_deref().is_none_or(|wanted| senders.match_pattern(wanted));
        is_sender && self.list.as_deref().is_none_or(|wanted| list == Some(wanted))
    }

    /// Whether the bounce covers mail to this domain, at this site if that is known.
    pub fn is_to(&self, domain: &str, site: Option<&str>) -> bool {
        self.domain.as_deref().is_none_or(|wanted| domain == wanted)
            && self.site.as_deref().is_none_or(|wanted| site == Some(wanted))
    }
}

/// Formats the name.
impl fmt::Display for StandingBounce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        let parts = [("site", &self.site), ("list", &self.list), ("to", &self.domain), ("sender", &self.sender)];
        let given = parts.into_iter().filter_map(|(kind, value)| Some((kind, value.as_deref()?)));
        for (at, (kind, value)) in given.enumerate() {
            write!(f, "{}{kind}:{value}", if at == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_were_written() {
        let some = |text: &str| Some(text.to_owned());
        for (name, bounce) in [
            ("bounce:site:route:10.0.0.5:25", StandingBounce { site: some("route:10.0.0.5:25"), ..Default::default() }),
            ("bounce:sender:", StandingBounce { sender: some(""), ..Default::default() }),
            (
                "bounce:site:mx list:news to:one.example sender:\"a to:b\"@c",
                StandingBounce {
                    site: some("mx"),
                    list: some("news"),
                    domain: some("one.example"),
                    sender: some("\"a to:b\"@c"),
                },
            ),
        ] {
            assert_eq!(bounce.to_string(), name);
            assert_eq!(StandingBounce::of_name(name), Some(bounce));
        }
        for bad in ["list:news", "bounce:", "bounce:weather:fine", "bounce:site:mx rain"] {
            assert_eq!(StandingBounce::of_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn all_parts_must_match() {
        let bounce = StandingBounce::of_name("bounce:site:mx list:news to:one.example sender:@home.example").unwrap();
        assert!(bounce.is_of(Senders::one("a@home.example"), Some("news")));
        assert!(
            !bounce.is_of(Senders::one("a@sub.home.example"), Some("news"))
                && !bounce.is_of(Senders::one(""), Some("news"))
        );
        assert!(
            !bounce.is_of(Senders::one("a@home.example"), None)
                && !bounce.is_of(Senders::one("a@home.example"), Some("other"))
        );
        assert!(bounce.is_to("one.example", Some("mx")));
        assert!(!bounce.is_to("two.example", Some("mx")));
        assert!(!bounce.is_to("one.example", None) && !bounce.is_to("one.example", Some("mx2")));
        let exact = StandingBounce { sender: Some("a@b".to_owned()), ..StandingBounce::default() };
        assert!(
            exact.is_of(Senders::one("a@b"), None)
                && !exact.is_of(Senders::one("xa@b"), None)
                && exact.is_to("any.example", None)
        );
    }
}
