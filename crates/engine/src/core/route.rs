//! Where a copy goes when the recipient's domain alone does not say: the sender's wish about TLS, and a next hop.
//!
//! A route is a value everywhere but in the journal, in the address book and in what people read. There it is text after
//! the address: `ann@example.org>tls:require hop:gateway`. This module is the only codec of that text. An entry with a
//! route has a domain of its own in the book, so mail with other requirements never shares a site.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use stentor_posture::Wish;
use stentor_queue::book::{HOP, at_hop, split_hop};
use stentor_rules::{HopError, NextHop};

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
    ///
    /// # Errors
    /// The route's next hop is not valid; the domain and the wish are.
    pub fn split(name: &str) -> (&str, Result<Route, InvalidRoute>) {
        let (domain, text) = split_hop(name);
        (domain, text.map_or_else(|| Ok(Route::default()), Route::parse))
    }

    /// Returns the route in the book's entry of an address.
    ///
    /// # Errors
    /// The route's next hop is not valid.
    pub fn of_entry(entry: &str, address: &str) -> Result<Route, InvalidRoute> {
        let text = entry.strip_prefix(address).and_then(|rest| rest.strip_prefix(HOP));
        text.map_or_else(|| Ok(Route::default()), Route::parse)
    }

    fn parse(text: &str) -> Result<Route, InvalidRoute> {
        let rest = |word| {
            let rest: &str = text.strip_prefix(word)?;
            if rest.is_empty() { Some(None) } else { rest.strip_prefix(' ').map(Some) }
        };
        let (wish, hop) = match (rest(REQUIRE), rest(OPTIONAL)) {
            (Some(hop), _) => (Wish { require_tls: true, tls_required_no: false }, hop),
            (_, Some(hop)) => (Wish { require_tls: false, tls_required_no: true }, hop),
            (None, None) => (Wish::default(), Some(text)),
        };
        let hop = hop.map(|hop| NextHop::parse(hop, SMTP_PORT).map(Arc::new)).transpose();
        Ok(Route { wish, hop: hop.map_err(|why| InvalidRoute { wish, why })? })
    }
}

/// A stored route whose next hop is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct InvalidRoute {
    pub wish: Wish,
    pub why: HopError,
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
    use stentor_mail::reply::{Enhanced, Reply};

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
            assert_eq!(Route::of_entry(&entry, "ann@example.org"), Ok(route.clone()));
            assert_eq!(Route::split(&format!("example.org>{text}")), ("example.org", Ok(route)));
        }
        let plain = Route::default();
        assert_eq!((plain.entry("example.org"), Route::split("example.org").1), ("example.org".into(), Ok(plain)));
    }

    #[test]
    fn an_invalid_next_hop_keeps_its_wish() {
        for text in ["tls:require hop:", "tls:require 10.0.0.256"] {
            assert_eq!(Route::split(&format!("a.example>{text}")).1.unwrap_err().wish, REQUIRED, "{text}");
        }
        for name in ["tls:required.example", "tls:requirements"] {
            let route = Route::split(&format!("a.example>{name}")).1;
            assert!(route.is_err_and(|invalid| invalid.wish == Wish::default()), "{name}");
        }
    }

    #[test]
    fn hosts_with_the_names_of_words() {
        for name in
            ["mx.example:25", "pipe:archive", "hop:mx", "lmtp:unix:/run/lmtp", "tls.example:25", "mx:relay.test:25"]
        {
            let route = Route { wish: REQUIRED, ..Route::by(hop(name)) };
            assert_eq!(Route::of_entry(&route.entry("\"a>\"@b.example"), "\"a>\"@b.example"), Ok(route), "{name}");
        }
        let refused = NextHop::Refuse(Reply::fixed(550, Enhanced::new(5, 7, 1), "tls:require mx"));
        let route = Route::by(refused);
        assert_eq!(Route::of_entry(&route.entry("a@b"), "a@b"), Ok(route));
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}") {
            let _ = Route::split(&text);
        }
    }
}
