//! Routes: the next hop by recipient or sender address, the most specific entry first.

use std::fmt;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::address::{AddressPattern, Key};
use crate::hop::NextHop;

/// Sources of a next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopSource {
    /// The action `route`.
    Rule,
    /// `[routes]` and tables, except their catch-alls.
    Recipient,
    /// `[sender_routes]` and tables, including their catch-alls.
    Sender,
    /// The catch-alls for recipients.
    Default,
}

impl HopSource {
    pub const ALL: [(HopSource, &'static str); 4] = [
        (HopSource::Rule, "rule"),
        (HopSource::Recipient, "recipient"),
        (HopSource::Sender, "sender"),
        (HopSource::Default, "default"),
    ];

    pub fn name(self) -> &'static str {
        HopSource::ALL.iter().find(|(who, _)| *who == self).map_or("", |(_, name)| name)
    }
}

/// The order of the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopSourceOrder([HopSource; 4]);

impl Default for HopSourceOrder {
    fn default() -> HopSourceOrder {
        HopSourceOrder(HopSource::ALL.map(|(who, _)| who))
    }
}

impl HopSourceOrder {
    /// Makes an order. Omitted sources come last, in the default order; an omitted rule comes first. `None`: a source
    /// is repeated.
    pub fn new(named: &[HopSource]) -> Option<HopSourceOrder> {
        let mut order: Vec<HopSource> = Vec::with_capacity(4);
        if !named.contains(&HopSource::Rule) {
            order.push(HopSource::Rule);
        }
        order.extend(named);
        for (who, _) in HopSource::ALL {
            if !order.contains(&who) {
                order.push(who);
            }
        }
        order.try_into().ok().map(HopSourceOrder)
    }

    pub fn iter(&self) -> impl Iterator<Item = HopSource> + '_ {
        self.0.iter().copied()
    }
}

/// One entry of a table of routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteEntry {
    /// Pattern as configured.
    pub pattern: Box<str>,
    /// `file:line`.
    pub place: Box<str>,
    pub hop: NextHop,
}

/// Routes by pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    entries: HashMap<Box<str>, Arc<RouteEntry>, FixedState>,
    any: Option<Arc<RouteEntry>>,
    /// Whether any pattern is a whole address.
    has_addresses: bool,
    has_refusals: bool,
}

/// Why a pattern cannot be a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unroutable {
    /// It is a regular expression or `user@`, which routes do not support.
    Pattern,
    Twice,
}

impl Routes {
    /// Adds a route.
    ///
    /// # Errors
    /// Routes do not support such a pattern, or there is an entry for it already.
    pub fn insert(&mut self, pattern: &AddressPattern, entry: RouteEntry) -> Result<(), Unroutable> {
        let is_refusal = matches!(entry.hop, NextHop::Refuse(_));
        let is_new = match pattern {
            AddressPattern::Any => self.any.replace(Arc::new(entry)).is_none(),
            AddressPattern::Text(text) if !text.ends_with('@') => {
                self.has_addresses |= text.contains('@') || &**text == crate::address::NULL;
                self.entries.insert(text.clone(), Arc::new(entry)).is_none()
            }
            AddressPattern::Text(_) | AddressPattern::Regex(_) => return Err(Unroutable::Pattern),
        };
        self.has_refusals |= is_refusal;
        if is_new { Ok(()) } else { Err(Unroutable::Twice) }
    }

    /// The entry for this pattern, if there is one.
    pub fn same(&self, pattern: &AddressPattern) -> Option<&Arc<RouteEntry>> {
        match pattern {
            AddressPattern::Any => self.any.as_ref(),
            AddressPattern::Text(text) => self.entries.get(text),
            AddressPattern::Regex(_) => None,
        }
    }

    /// All entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &RouteEntry> {
        self.entries.values().chain(&self.any).map(|entry| &**entry)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.any.is_none()
    }

    pub fn has_addresses(&self) -> bool {
        self.has_addresses
    }

    /// Whether some entry refuses mail.
    pub fn has_refusals(&self) -> bool {
        self.has_refusals
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len() + usize::from(self.any.is_some())
    }

    /// The entry for an address, except the catch-all.
    pub fn find(&self, key: &Key) -> Option<&Arc<RouteEntry>> {
        if self.entries.is_empty() {
            return None;
        }
        let addresses = if self.has_addresses { Some(key.addresses()) } else { None };
        addresses.into_iter().flatten().chain(key.domains()).find_map(|text| self.entries.get(text))
    }

    /// The entry for a domain, including the catch-all; it applies to queued mail.
    pub fn of_domain(&self, domain: &str) -> Option<&Arc<RouteEntry>> {
        let suffixes = if domain.starts_with('[') { "" } else { domain };
        let suffixes = suffixes.match_indices('.').map(|(dot, _)| &suffixes[dot..]);
        std::iter::once(domain).chain(suffixes).find_map(|text| self.entries.get(text)).or(self.any.as_ref())
    }

    pub fn any(&self) -> Option<&Arc<RouteEntry>> {
        self.any.as_ref()
    }
}

impl fmt::Display for RouteEntry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} = {}", self.pattern, self.hop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_completed() {
        let order = |named: &[HopSource]| {
            HopSourceOrder::new(named).map(|order| order.iter().map(HopSource::name).collect::<Vec<_>>())
        };
        assert_eq!(order(&[]).unwrap(), ["rule", "recipient", "sender", "default"]);
        assert_eq!(order(&[HopSource::Sender]).unwrap(), ["rule", "sender", "recipient", "default"]);
        assert_eq!(
            order(&[HopSource::Recipient, HopSource::Rule]).unwrap(),
            ["recipient", "rule", "sender", "default"]
        );
        assert_eq!(
            order(&[HopSource::Default, HopSource::Sender]).unwrap(),
            ["rule", "default", "sender", "recipient"]
        );
        assert_eq!(order(&[HopSource::Sender, HopSource::Sender]), None);
    }
}
