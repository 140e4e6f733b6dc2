//! The class of mail by its injector: networks whose mail is always ordinary or bulk, regardless of other criteria.

use std::net::IpAddr;

use ipnet::IpNet;
use stentor_mail::Class;

/// Networks and the class of mail from them. The most specific network that contains an address decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InjectorClasses {
    /// Networks, the longest prefix first.
    networks: Vec<(IpNet, Class)>,
}

impl InjectorClasses {
    /// `networks` may be in any order; of equal ones the first counts.
    pub fn new(networks: impl IntoIterator<Item = (IpNet, Class)>) -> InjectorClasses {
        let mut networks: Vec<_> = networks.into_iter().map(|(network, class)| (network.trunc(), class)).collect();
        networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix_len()));
        InjectorClasses { networks }
    }

    /// The class configured for an injector, if any.
    pub fn of(&self, client: IpAddr) -> Option<Class> {
        let client = client.to_canonical();
        self.networks.iter().find(|(network, _)| network.contains(&client)).map(|(_, class)| *class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_network_decides() {
        let classes = InjectorClasses::new([
            ("10.0.0.0/8".parse().unwrap(), Class::Bulk),
            ("10.1.2.3/32".parse().unwrap(), Class::Ordinary),
            ("2001:db8::/32".parse().unwrap(), Class::Bulk),
        ]);
        let of = |text: &str| classes.of(text.parse().unwrap());
        assert_eq!(of("10.1.2.3"), Some(Class::Ordinary));
        assert_eq!(of("::ffff:10.1.2.4"), Some(Class::Bulk));
        assert_eq!(of("2001:db8::1"), Some(Class::Bulk));
        assert_eq!(of("192.0.2.1"), None);
    }
}
