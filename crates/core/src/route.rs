//! Where a copy goes when the recipient's domain alone does not say: the sender's wish about TLS, and a next hop.
//!
//! A route is a value everywhere but in the journal, in the address book and in what people read. There it is text
//! after the address: `ann@example.org>tls:require hop:gateway`. This module is the only codec of that text. An entry
//! with a route has a domain of its own in the book, so mail with other requirements never shares a site.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::book::{HOP, at_hop, split_hop};
use stentor_rules::{HopError, NextHop};
use stentor_tls_policy::Wish;

/// Words for a wish; no host or hop name can begin with them.
const REQUIRE: &str = "tls:require";
const OPTIONAL: &str = "tls:optional";
/// For hosts without a port. Text written here always has one.
const SMTP_PORT: u16 = 25;

/// Where a recipient's copy goes, and how it must be protected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    pub wish: Wish,
    /// `None`: the domain's next hop at delivery, which follows later changes of files.
    pub hop: Option<Arc<NextHop>>,
}

impl Route {
    /// The route by a next hop, without a wish.
    pub fn by(hop: NextHop) -> Route {
        Route { hop: Some(Arc::new(hop)), ..Route::default() }
    }

    /// Whether the recipient's domain alone decides.
    pub fn is_plain(&self) -> bool {
        self.hop.is_none() && self.wish == Wish::default()
    }

    /// Returns the book's entry for an address or a domain.
    pub fn entry<'n>(&self, name: &'n str) -> Cow<'n, str> {
        if self.is_plain() { name.into() } else { at_hop(name, &self.to_string()).into() }
    }

    /// Splits the book's name of a domain into the domain and its route.
    pub fn split(name: &str) -> (&str, Route) {
        let (domain, text) = split_hop(name);
        (domain, text.map(Route::parse).unwrap_or_default())
    }

    /// Returns the route in the book's entry of an address.
    pub fn of_entry(entry: &str, address: &str) -> Route {
        let text = entry.strip_prefix(address).and_then(|rest| rest.strip_prefix(HOP));
        text.map(Route::parse).unwrap_or_default()
    }

    /// Parses a route. Mail with a next hop that is not valid waits: it goes nowhere else.
    fn parse(text: &str) -> Route {
        let rest = |word| {
            let rest: &str = text.strip_prefix(word)?;
            if rest.is_empty() { Some(None) } else { rest.strip_prefix(' ').map(Some) }
        };
        let (wish, hop) = match (rest(REQUIRE), rest(OPTIONAL)) {
            (Some(hop), _) => (Wish { require_tls: true, tls_required_no: false }, hop),
            (_, Some(hop)) => (Wish { require_tls: false, tls_required_no: true }, hop),
            (None, None) => (Wish::default(), Some(text)),
        };
        let invalid = |error: HopError| NextHop::Refuse(Reply::new(450, Enhanced::new(4, 4, 4), error.to_string()));
        let hop = hop.map(|hop| NextHop::parse(hop, SMTP_PORT).unwrap_or_else(invalid));
        Route { wish, hop: hop.map(Arc::new) }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.wish {
            Wish { require_tls: true, .. } => REQUIRE,
            Wish { tls_required_no: true, .. } => OPTIONAL,
            Wish { .. } => "",
        };
        match &self.hop {
            None => out.write_str(word),
            Some(hop) if word.is_empty() => write!(out, "{hop}"),
            Some(hop) => write!(out, "{word} {hop}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUIRED: Wish = Wish { require_tls: true, tls_required_no: false };
    const NOT_REQUIRED: Wish = Wish { require_tls: false, tls_required_no: true };

    fn hop(text: &str) -> NextHop {
        NextHop::parse(text, 25).expect("a next hop")
    }

    /// The octets on disk: data folders of earlier versions hold these.
    #[test]
    fn text_of_routes() {
        for (text, wish, next) in [
            ("hop:gateway", Wish::default(), Some("hop:gateway")),
            ("10.0.0.5:25 relay.example:2525", Wish::default(), Some("10.0.0.5:25 relay.example:2525")),
            ("tls:require", REQUIRED, None),
            ("tls:require hop:gateway", REQUIRED, Some("hop:gateway")),
            ("tls:optional mx", NOT_REQUIRED, Some("mx")),
            (
                "error: 550 5.1.6 ask new@d.example, or a>b",
                Wish::default(),
                Some("error: 550 5.1.6 ask new@d.example, or a>b"),
            ),
        ] {
            let route = Route { wish, hop: next.map(|next| Arc::new(hop(next))) };
            let entry = format!("ann@example.org>{text}");
            assert_eq!(route.entry("ann@example.org"), entry);
            assert_eq!(Route::of_entry(&entry, "ann@example.org"), route.clone());
            assert_eq!(Route::split(&format!("example.org>{text}")), ("example.org", route));
        }
        let plain = Route::default();
        assert_eq!((plain.entry("example.org"), Route::split("example.org").1), ("example.org".into(), plain));
    }

    #[test]
    fn an_invalid_next_hop_keeps_its_wish_and_mail_waiting() {
        for (text, wish) in [
            ("tls:require hop:", REQUIRED),
            ("tls:require 10.0.0.256", REQUIRED),
            ("tls:required.example", Wish::default()),
            ("tls:requirements", Wish::default()),
        ] {
            let route = Route::split(&format!("a.example>{text}")).1;
            assert_eq!(route.wish, wish, "{text}");
            let waits = |hop: &NextHop| matches!(hop, NextHop::Refuse(reply) if reply.code == 450);
            assert!(route.hop.as_deref().is_some_and(waits), "{text}");
        }
    }

    #[test]
    fn hosts_with_the_names_of_words() {
        for name in
            ["mx.example:25", "pipe:archive", "hop:mx", "lmtp:unix:/run/lmtp", "tls.example:25", "mx:relay.test:25"]
        {
            let route = Route { wish: REQUIRED, ..Route::by(hop(name)) };
            assert_eq!(Route::of_entry(&route.entry("\"a>\"@b.example"), "\"a>\"@b.example"), route, "{name}");
        }
        let refused = NextHop::Refuse(Reply::fixed(550, Enhanced::new(5, 7, 1), "tls:require mx"));
        let route = Route::by(refused);
        assert_eq!(Route::of_entry(&route.entry("a@b"), "a@b"), route);
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}") {
            let _ = Route::split(&text);
        }
    }
}
