//! Greylisting: mail of an unknown triplet of network, sender and recipient is deferred until it is retried, as in
//! postgrey.
//!
//! States of a triplet: unknown -> waiting since its first attempt -> passed, when it is retried after the delay and
//! within the window. A network with enough passed triplets is known and no longer greylisted. Entries that have not
//! been seen for long are removed.
//!
//! Promise: memory is bounded, and no client can displace others. When [`GreylistSettings::entries_max`] is reached,
//! the origins with most entries lose some: each origin (IPv4: /24, IPv6: /48) keeps the same number of its latest
//! triplets, so a flood from one origin only displaces its own. Waiting triplets are removed first; passed ones,
//! which bots can get by retrying, may use three quarters. Addresses are not stored: a triplet is 16 octets of
//! hashes, eight of its origin and eight of itself.
//!
//! The file has a line that names the format, records, and a checksum. An incomplete file is an error, and its owner
//! starts with an empty one: mail is deferred once more.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sha2::{Digest, Sha256};

const MAGIC: &[u8] = b"stentor greylist 1\n";
const CHECKSUM_BYTES: usize = 32;
const RECORD_BYTES: usize = 16 + 4 + 4 + 1;
/// Significant bits of an IPv4 address, and of an IPv6 address.
const V4_MASK: u32 = 0xffff_ff00;
const V6_MASK: u128 = !0 << 64;
/// Bits of an IPv6 address that one customer may share: 65,536 networks.
const V6_ORIGIN_MASK: u128 = !0 << 80;
/// Octets of a key that come from its origin.
const ORIGIN_BYTES: usize = 8;

/// Settings of greylisting; times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreylistSettings {
    /// Minimum delay of a triplet.
    pub delay_ms: u64,
    /// Maximum time until the retry.
    pub window_ms: u64,
    /// How long a passed triplet stays known after it was last seen.
    pub known_ms: u64,
    /// Number of passed triplets after which a network is known; 0: never.
    pub network_passes: u32,
    /// Maximum triplets stored.
    pub entries_max: usize,
}

/// Result for a recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greylisted {
    /// Deferred, with the remaining milliseconds.
    Yes(u64),
    No,
}

type Key = [u8; 16];
type Origin = [u8; ORIGIN_BYTES];

/// One entry; times in seconds since the epoch.
#[derive(Debug, Clone, Copy)]
struct Entry {
    first: u32,
    last: u32,
    /// For a triplet: 1 once it has passed. For a network: number of passed triplets.
    passed: u8,
}

/// The greylist; see the module documentation.
#[derive(Debug, Default)]
pub struct Greylist {
    triplets: HashMap<Key, Entry>,
    networks: HashMap<Key, Entry>,
    is_changed: bool,
}

/// The file has another format, or is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedGreylist;

/// What greylisting tells attempts apart by.
#[derive(Debug, Clone, Copy)]
pub struct Triplet<'a> {
    pub client: IpAddr,
    pub sender: &'a str,
    pub recipient: &'a str,
}

impl Greylist {
    /// Whether mail is deferred at this attempt. `now`: milliseconds since the epoch.
    pub fn ask(&mut self, settings: &GreylistSettings, triplet: &Triplet<'_>, now: u64) -> Greylisted {
        let Triplet { client, sender, recipient } = *triplet;
        let seconds = (now / 1_000) as u32;
        let network = network(client);
        let network_key = key(client, &[network.to_string().as_bytes()]);
        let is_fresh = |entry: &Entry, ms: u64| u64::from(seconds.saturating_sub(entry.last)) * 1_000 <= ms;
        self.is_changed = true;
        if let Some(known) = self.networks.get_mut(&network_key).filter(|known| is_fresh(known, settings.known_ms))
            && settings.network_passes > 0
            && u32::from(known.passed) >= settings.network_passes
        {
            known.last = seconds;
            return Greylisted::No;
        }
        let parts = [network.to_string(), plain(sender), recipient.to_lowercase()];
        let triplet = key(client, &parts.each_ref().map(String::as_bytes));
        if let Some(entry) = self.triplets.get_mut(&triplet) {
            let limit = if entry.passed > 0 { settings.known_ms } else { settings.window_ms };
            if is_fresh(entry, limit) {
                let waited = u64::from(seconds.saturating_sub(entry.first)) * 1_000;
                if entry.passed > 0 {
                    entry.last = seconds;
                    return Greylisted::No;
                }
                if waited < settings.delay_ms {
                    // An early retry does not restart the delay.
                    return Greylisted::Yes(settings.delay_ms - waited);
                }
                (entry.passed, entry.last) = (1, seconds);
                self.passed(settings, network_key, seconds);
                return Greylisted::No;
            }
        }
        self.make_room(settings, seconds);
        self.triplets.insert(triplet, Entry { first: seconds, last: seconds, passed: 0 });
        Greylisted::Yes(settings.delay_ms)
    }

    /// Counts a passed triplet for its network.
    fn passed(&mut self, settings: &GreylistSettings, network: Key, seconds: u32) {
        if self.networks.len() >= settings.entries_max {
            level(&mut self.networks, settings.entries_max / 2, |_| true);
        }
        let known = self.networks.entry(network).or_insert(Entry { first: seconds, last: seconds, passed: 0 });
        (known.last, known.passed) = (seconds, known.passed.saturating_add(1));
    }

    fn make_room(&mut self, settings: &GreylistSettings, seconds: u32) {
        if self.triplets.len() < settings.entries_max {
            return;
        }
        self.forget(settings, seconds);
        if self.triplets.len() < settings.entries_max {
            return;
        }
        let has_passed = |entry: &Entry| entry.passed > 0;
        let count = |all: &HashMap<Key, Entry>| all.values().filter(|entry| has_passed(entry)).count();
        if count(&self.triplets) > settings.entries_max / 4 * 3 {
            level(&mut self.triplets, settings.entries_max / 2, has_passed);
        }
        // An eighth is freed, so that each pass over all entries is followed by that many new ones.
        let waiting_max = (settings.entries_max / 8 * 7).saturating_sub(count(&self.triplets));
        level(&mut self.triplets, waiting_max, |entry| !has_passed(entry));
    }

    /// Removes expired entries.
    fn forget(&mut self, settings: &GreylistSettings, seconds: u32) {
        let age = |entry: &Entry| u64::from(seconds.saturating_sub(entry.last)) * 1_000;
        self.triplets
            .retain(|_, entry| age(entry) <= if entry.passed > 0 { settings.known_ms } else { settings.window_ms });
        self.networks.retain(|_, entry| age(entry) <= settings.known_ms);
    }

    /// Number of triplets, waiting or passed, and of networks.
    pub fn counts(&self) -> (usize, usize) {
        (self.triplets.len(), self.networks.len())
    }

    /// The data to write ([`Greylist::sealed`]), if anything has changed since the last call, without expired
    /// entries.
    pub fn save(&mut self, settings: &GreylistSettings, now: u64) -> Option<Vec<u8>> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        self.forget(settings, (now / 1_000) as u32);
        let mut out =
            Vec::with_capacity(MAGIC.len() + (self.triplets.len() + self.networks.len() + 1) * RECORD_BYTES + 64);
        out.extend_from_slice(MAGIC);
        for entries in [&self.triplets, &self.networks] {
            out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
            for (key, Entry { first, last, passed }) in entries {
                out.extend_from_slice(key);
                out.extend_from_slice(&first.to_le_bytes());
                out.extend_from_slice(&last.to_le_bytes());
                out.push(*passed);
            }
        }
        Some(out)
    }

    /// Marks it as changed, because the last data could not be written.
    pub fn set_changed(&mut self) {
        self.is_changed = true;
    }

    /// The octets of a file, with the checksum.
    pub fn sealed(mut body: Vec<u8>) -> Vec<u8> {
        let checksum = Sha256::digest(&body);
        body.extend_from_slice(&checksum);
        body
    }

    /// Parses a file.
    ///
    /// # Errors
    /// It has another format, or is incomplete.
    pub fn load(file: &[u8]) -> Result<Greylist, DamagedGreylist> {
        let (body, checksum) = file.split_at_checked(file.len().wrapping_sub(CHECKSUM_BYTES)).ok_or(DamagedGreylist)?;
        let mut rest = body.strip_prefix(MAGIC).ok_or(DamagedGreylist)?;
        if Sha256::digest(body).as_slice() != checksum {
            return Err(DamagedGreylist);
        }
        let triplets = entries(&mut rest)?;
        let networks = entries(&mut rest)?;
        if rest.is_empty() { Ok(Greylist { triplets, networks, is_changed: false }) } else { Err(DamagedGreylist) }
    }
}

fn entries(rest: &mut &[u8]) -> Result<HashMap<Key, Entry>, DamagedGreylist> {
    let (count, more) = rest.split_first_chunk::<4>().ok_or(DamagedGreylist)?;
    let bytes = (u32::from_le_bytes(*count) as usize).checked_mul(RECORD_BYTES).ok_or(DamagedGreylist)?;
    let (records, more) = more.split_at_checked(bytes).ok_or(DamagedGreylist)?;
    *rest = more;
    let record = |record: &[u8]| {
        let (key, record) = record.split_first_chunk::<16>()?;
        let (first, record) = record.split_first_chunk::<4>()?;
        let (last, record) = record.split_first_chunk::<4>()?;
        let entry =
            Entry { first: u32::from_le_bytes(*first), last: u32::from_le_bytes(*last), passed: *record.first()? };
        Some((*key, entry))
    };
    records.chunks_exact(RECORD_BYTES).map(|chunk| record(chunk).ok_or(DamagedGreylist)).collect()
}

/// Reduces the entries selected by `counts` to `left`, with an equal maximum for each origin, whose latest entries
/// are kept.
fn level(entries: &mut HashMap<Key, Entry>, left: usize, counts: impl Fn(&Entry) -> bool) {
    let counted = entries.iter().filter(|(_, entry)| counts(entry));
    let mut all: Vec<(Origin, Reverse<u32>, Key)> =
        counted.map(|(key, entry)| (origin(key), Reverse(entry.last), *key)).collect();
    all.sort_unstable();
    let of_origins: Vec<usize> = all.chunk_by(|one, other| one.0 == other.0).map(<[_]>::len).collect();
    let share = share(of_origins, left);
    for of_origin in all.chunk_by(|one, other| one.0 == other.0) {
        for (_, _, key) in of_origin.iter().skip(share.max(1)) {
            entries.remove(key);
        }
    }
    if share > 0 {
        return;
    }
    // There are more origins than places.
    all.retain(|(_, _, key)| entries.contains_key(key));
    all.sort_unstable_by_key(|(_, last, _)| *last);
    for (_, _, key) in all.iter().skip(left) {
        entries.remove(key);
    }
}

/// The maximum for each origin so that the total is at most `left`.
fn share(mut of_origins: Vec<usize>, left: usize) -> usize {
    of_origins.sort_unstable();
    let (mut rest, mut origins) = (left, of_origins.len());
    for has in of_origins {
        if has * origins > rest {
            return rest / origins;
        }
        (rest, origins) = (rest - has, origins - 1);
    }
    usize::MAX
}

fn origin(key: &Key) -> Origin {
    std::array::from_fn(|n| key[n])
}

/// The network of a client: a large sender may retry from another of its hosts.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & V4_MASK).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & V6_MASK).into(),
    }
}

/// The sender without parts that vary by message: `list+owner-123@x` and `list+owner-124@x` are equal, as in
/// postgrey.
fn plain(sender: &str) -> String {
    let lower = sender.to_lowercase();
    let Some((user, domain)) = lower.rsplit_once('@') else { return lower };
    let user = user.split_once('+').map_or(user, |(user, _)| user);
    let mut out = String::with_capacity(lower.len());
    let mut in_number = false;
    for letter in user.chars() {
        let is_digit = letter.is_ascii_digit();
        if !is_digit {
            out.push(letter);
        } else if !in_number {
            out.push('#');
        }
        in_number = is_digit;
    }
    out.push('@');
    out.push_str(domain);
    out
}

fn key(client: IpAddr, parts: &[&[u8]]) -> Key {
    let origin = match network(client) {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & V6_ORIGIN_MASK).into(),
        v4 @ IpAddr::V4(_) => v4,
    };
    let (origin, own) = (hash(&[origin.to_string().as_bytes()]), hash(parts));
    std::array::from_fn(|n| if n < ORIGIN_BYTES { origin[n] } else { own[n] })
}

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: u64 = 60_000;
    const DAY: u64 = 86_400_000;
    const T0: u64 = 20_000 * DAY;
    const SETTINGS: GreylistSettings = GreylistSettings {
        delay_ms: 5 * MINUTE,
        window_ms: 2 * DAY,
        known_ms: 35 * DAY,
        network_passes: 3,
        entries_max: 1_000,
    };

    fn ask(list: &mut Greylist, client: &str, sender: &str, to: &str, now: u64) -> bool {
        list.ask(&SETTINGS, &Triplet { client: client.parse().unwrap(), sender, recipient: to }, now) != Greylisted::No
    }

    #[test]
    fn a_triplet_waits_passes_and_stays_known() {
        let mut list = Greylist::default();
        let mut tried = |now| {
            list.ask(
                &SETTINGS,
                &Triplet { client: "192.0.2.1".parse().unwrap(), sender: "a@x.test", recipient: "b@y.test" },
                now,
            )
        };
        assert_eq!(tried(T0), Greylisted::Yes(5 * MINUTE));
        assert_eq!(tried(T0 + MINUTE), Greylisted::Yes(4 * MINUTE), "an early retry does not begin the delay anew");
        assert_eq!(tried(T0 + 5 * MINUTE), Greylisted::No);
        assert_eq!(tried(T0 + 35 * DAY), Greylisted::No);
        assert_eq!(tried(T0 + 69 * DAY), Greylisted::No, "known since it was seen last");
        assert_eq!(tried(T0 + 105 * DAY), Greylisted::Yes(5 * MINUTE), "forgotten");
    }

    #[test]
    fn who_comes_back_too_late_begins_anew() {
        let mut list = Greylist::default();
        assert!(ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", T0));
        assert!(ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", T0 + 3 * DAY));
        assert!(!ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", T0 + 3 * DAY + 5 * MINUTE));
    }

    #[test]
    fn hosts_of_one_network_and_senders_of_one_list_are_one() {
        let mut list = Greylist::default();
        assert!(ask(&mut list, "192.0.2.1", "News+1@X.test", "B@y.test", T0));
        assert!(!ask(&mut list, "192.0.2.200", "news+2@x.test", "b@Y.test", T0 + 5 * MINUTE));
        assert!(ask(&mut list, "2001:db8::1", "bounce-17-a@x.test", "b@y.test", T0));
        assert!(!ask(&mut list, "2001:db8::ffff:1", "bounce-18-a@x.test", "b@y.test", T0 + 5 * MINUTE));
        for (client, sender, to) in [
            ("192.0.3.1", "news@x.test", "b@y.test"),
            ("192.0.2.1", "news@z.test", "b@y.test"),
            ("192.0.2.1", "news@x.test", "c@y.test"),
            ("2001:db8:0:1::1", "bounce-1-a@x.test", "b@y.test"),
        ] {
            assert!(ask(&mut list, client, sender, to, T0 + 5 * MINUTE), "{client} {sender} {to}");
        }
    }

    #[test]
    fn a_network_that_came_back_often_is_known() {
        let mut list = Greylist::default();
        for n in 0..3 {
            assert!(ask(&mut list, "192.0.2.1", "a@x.test", &format!("{n}@y.test"), T0));
            assert!(!ask(&mut list, "192.0.2.1", "a@x.test", &format!("{n}@y.test"), T0 + 5 * MINUTE));
        }
        assert!(!ask(&mut list, "192.0.2.9", "new@z.test", "new@y.test", T0 + 6 * MINUTE));
        assert!(ask(&mut list, "192.0.3.9", "new@z.test", "new@y.test", T0 + 6 * MINUTE));
        assert!(ask(&mut list, "192.0.2.9", "new@z.test", "other@y.test", T0 + 50 * DAY), "not for ever");
    }

    #[test]
    fn bots_push_out_each_other_and_nobody_who_has_passed() {
        let mut list = Greylist::default();
        assert!(ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", T0));
        assert!(!ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", T0 + 5 * MINUTE));
        for n in 0..20_000 {
            assert!(ask(&mut list, "198.51.100.1", "bot@z.test", &format!("u{n}@y.test"), T0 + 6 * MINUTE + n * 1_000));
            assert!(list.counts().0 <= SETTINGS.entries_max);
        }
        assert!(!ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", T0 + DAY));
    }

    #[test]
    fn a_flood_from_one_network_delays_nobody_else() {
        let mut list = Greylist::default();
        assert!(ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", T0));
        for n in 0..20_000 {
            let client = if n % 2 == 0 { "198.51.100.1".to_owned() } else { format!("2001:db8:0:{n:x}::1") };
            assert!(ask(&mut list, &client, "bot@z.test", &format!("u{n}@y.test"), T0 + n * 10));
            assert!(list.counts().0 <= SETTINGS.entries_max);
        }
        assert!(!ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", T0 + 6 * MINUTE));
    }

    #[test]
    fn a_flood_that_comes_back_leaves_places_to_those_who_wait() {
        let mut list = Greylist::default();
        let bot = |n: u64| (format!("2001:db8:0:{:x}::1", n / 2), format!("u{n}@y.test"));
        for n in 0..20_000 {
            let now = T0 + n * MINUTE;
            let _ = ask(&mut list, &bot(n).0, "bot@z.test", &bot(n).1, now);
            if let Some(before) = n.checked_sub(6) {
                let _ = ask(&mut list, &bot(before).0, "bot@z.test", &bot(before).1, now);
            }
        }
        let begin = T0 + 20_000 * MINUTE;
        assert!(ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", begin));
        for n in 0..2_000 {
            let _ = ask(&mut list, &format!("2001:db8:1:{n:x}::1"), "c@z.test", "d@y.test", begin + n * 100);
        }
        assert!(!ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", begin + 6 * MINUTE));
    }

    #[test]
    fn those_who_have_most_give_way() {
        assert_eq!(share(vec![1, 2, 100], 10), 7);
        assert_eq!(share(vec![5, 5, 5], 10), 3);
        assert_eq!(share(vec![1, 2], 10), usize::MAX);
        assert_eq!(share(vec![1; 11], 10), 0);
        let entry = |last| Entry { first: 0, last, passed: 0 };
        let at = |origin: u8, n: u8| std::array::from_fn(|at| if at < ORIGIN_BYTES { origin } else { n });
        let mut entries: HashMap<Key, Entry> = (0..100).map(|n| (at(1, n), entry(u32::from(n)))).collect();
        entries.insert(at(2, 0), entry(0));
        level(&mut entries, 10, |_| true);
        let mut left: Vec<_> = entries.iter().map(|(key, entry)| (key[0], entry.last)).collect();
        left.sort_unstable();
        let latest = (91..100).map(|last| (1, last)).chain([(2, 0)]).collect::<Vec<_>>();
        assert_eq!(left, latest);
        let mut entries: HashMap<Key, Entry> = (0..100).map(|n| (at(n, 0), entry(u32::from(n)))).collect();
        level(&mut entries, 10, |_| true);
        assert!(entries.len() == 10 && entries.values().all(|entry| entry.last >= 90));
    }

    #[test]
    fn a_file_gives_back_what_was_known_and_a_damaged_one_nothing() {
        let mut list = Greylist::default();
        assert_eq!(list.save(&SETTINGS, T0), None);
        assert!(ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", T0));
        assert!(!ask(&mut list, "192.0.2.1", "a@x.test", "b@y.test", T0 + 5 * MINUTE));
        assert!(ask(&mut list, "192.0.2.1", "a@x.test", "c@y.test", T0 + 5 * MINUTE));
        let file = Greylist::sealed(list.save(&SETTINGS, T0 + 6 * MINUTE).unwrap());
        assert_eq!(list.save(&SETTINGS, T0 + 6 * MINUTE), None, "nothing has changed");
        let mut again = Greylist::load(&file).unwrap();
        assert_eq!(again.counts(), (2, 1));
        assert!(!ask(&mut again, "192.0.2.1", "a@x.test", "b@y.test", T0 + 6 * MINUTE));
        assert!(!ask(&mut again, "192.0.2.1", "a@x.test", "c@y.test", T0 + 10 * MINUTE));
        for at in 0..file.len() {
            let mut broken = file.clone();
            broken[at] ^= 1;
            assert!(Greylist::load(&broken).is_err() && Greylist::load(&file[..at]).is_err(), "{at}");
        }
        assert!(Greylist::load(&[]).is_err());
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(bytes: Vec<u8>, counts: [u32; 2]) {
            let _ = Greylist::load(&bytes);
            let mut file = MAGIC.to_vec();
            file.extend(counts[0].to_le_bytes());
            file.extend(&bytes);
            file.extend(counts[1].to_le_bytes());
            let checksum = Sha256::digest(&file);
            file.extend(checksum);
            let _ = Greylist::load(&file);
        }
    }
}
