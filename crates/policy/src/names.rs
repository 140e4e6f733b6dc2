//! The recipients as named by the client, if others get their mail. Log and history contain them, so that mail can be
//! found by these names.
//!
//! Promise: addresses that get the mail themselves are left out; an envelope has at most [`NAMED_MAX`].

use std::collections::HashSet;

use stentor_mail::address::Address;

use crate::envelope_groups::{EnvelopeKind, Group};
use crate::recipients::Recipients;

/// Maximum names of one envelope, for which a record of the history has room.
pub const NAMED_MAX: usize = 500;

/// Original names of recipients; see the module documentation.
#[derive(Debug, Default)]
pub struct Names {
    /// Named address, and the canonical address that replaced it.
    rewritten: Vec<(Address, Address)>,
    /// All named addresses of a message that rules redirect or copy.
    all: Vec<Box<str>>,
    is_redirected: bool,
}

impl Names {
    /// Records that a canonical address replaces a recipient.
    pub fn rewrite(&mut self, named: Address, to: Address) {
        self.rewritten.push((named, to));
    }

    /// The address as named by the client.
    pub fn given<'a>(&'a self, address: &'a Address) -> &'a Address {
        self.rewritten.iter().find(|(_, to)| to == address).map_or(address, |(named, _)| named)
    }

    /// All named addresses. `list` returns the address of a list.
    pub fn all<P>(&self, rcpts: &Recipients<P>, list: impl Fn(&str) -> Option<Address>) -> Vec<Box<str>> {
        let lists: Vec<Address> = rcpts.lists().iter().filter_map(|name| list(name)).collect();
        let all = rcpts.relayed().chain(rcpts.aliases()).chain(&lists);
        all.take(NAMED_MAX).map(|to| self.given(to).as_str().into()).collect()
    }

    /// Records that other recipients replace all named ones, or get copies as well.
    pub fn replaced(&mut self, all: Vec<Box<str>>, is_redirected: bool) {
        (self.all, self.is_redirected) = (all, is_redirected);
    }

    /// The named addresses whose mail is in an envelope.
    pub fn of<P>(&self, group: &Group<P>, list: impl Fn(&str) -> Option<Address>) -> Vec<Box<str>> {
        match &group.of {
            _ if self.is_redirected => self.all.clone(),
            EnvelopeKind::List(name) => list(name).iter().map(|to| self.given(to).as_str().into()).collect(),
            EnvelopeKind::Alias(address) => vec![self.given(address).as_str().into()],
            EnvelopeKind::Others if self.all.is_empty() && self.rewritten.is_empty() => Vec::new(),
            EnvelopeKind::Others => {
                let to: HashSet<&str> = group.to.iter().map(|(to, _)| to.as_str()).collect();
                let rewritten = self.rewritten.iter().filter(|(_, own)| to.contains(own.as_str()));
                let mut seen = HashSet::new();
                let named = rewritten.map(|(named, _)| named.as_str()).chain(self.all.iter().map(|named| &**named));
                let named = named.filter(|named| !to.contains(named) && seen.insert(*named));
                named.take(NAMED_MAX).map(Into::into).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AddressClass;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn group(of: EnvelopeKind, to: &[&str]) -> Group<()> {
        let to = to.iter().map(|to| (address(to), ())).collect();
        Group { of, sender: None, to, why: String::new(), hops: String::new() }
    }

    #[test]
    fn an_envelope_has_those_whose_mail_it_is_under_another_address() {
        let list = |name: &str| Some(address(&format!("{name}@lists.test")));
        let mut names = Names::default();
        assert!(names.of(&group(EnvelopeKind::Others, &["a@x.test"]), list).is_empty());
        names.rewrite(address("old@x.test"), address("a@x.test"));
        names.rewrite(address("sales@x.test"), address("team@x.test"));
        assert_eq!(names.of(&group(EnvelopeKind::Others, &["a@x.test", "b@x.test"]), list), ["old@x.test".into()]);
        assert_eq!(
            names.of(&group(EnvelopeKind::Alias(address("team@x.test")), &["c@y.test"]), list),
            ["sales@x.test".into()]
        );
        assert_eq!(names.of(&group(EnvelopeKind::List("news".into()), &[]), list), ["news@lists.test".into()]);

        let mut rcpts: Recipients<()> = Recipients::default();
        rcpts.add(address("a@x.test"), (), AddressClass::Relay, String::new);
        rcpts.add(address("b@x.test"), (), AddressClass::Relay, String::new);
        rcpts.add(address("news@lists.test"), (), AddressClass::List("news".into()), String::new);
        let all = names.all(&rcpts, list);
        assert_eq!(all, ["old@x.test".into(), "b@x.test".into(), "news@lists.test".into()]);
        names.replaced(all.clone(), false);
        let copied = names.of(&group(EnvelopeKind::Others, &["a@x.test", "b@x.test", "archive@x.test"]), list);
        assert_eq!(copied, ["old@x.test".into(), "news@lists.test".into()]);
        names.replaced(all.clone(), true);
        assert_eq!(names.of(&group(EnvelopeKind::Others, &["new@z.test"]), list), all);
    }
}
