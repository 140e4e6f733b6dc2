use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn ids_of(book: &AddressBook, domain: &str) -> Vec<u32> {
    book.domain_lookup(domain).map_or_else(Vec::new, |id| book.addresses_of(id).iter().collect())
}

#[test]
fn an_address_has_one_id_and_a_domain() {
    let mut book = AddressBook::new();
    let (a, new) = book.intern("Anna@example.org").unwrap();
    assert!(new);
    assert_eq!(book.intern("Anna@example.org"), Some((a, false)));
    let (b, _) = book.intern("anna@example.org").unwrap();
    assert_ne!(a, b, "the case of local parts is kept");
    let (c, _) = book.intern("\"x@y\"@other.example").unwrap();
    assert_eq!(book.text(c), "\"x@y\"@other.example");
    assert_eq!(book.domain_name(book.domain(c)), "other.example");
    assert_eq!(book.domain(a), book.domain(b));
    assert_eq!(ids_of(&book, "example.org"), [a.0, b.0]);
    assert_eq!(book.lookup("anna@example.org"), Some(b));
    assert_eq!(book.lookup("nobody@example.org"), None);
    assert_eq!((book.len(), book.domains()), (3, 2));
    assert_eq!(book.text(AddressId(77)), "");
    assert_eq!(book.try_domain(AddressId(77)), None);
    assert!(ids_of(&book, "nowhere.example").is_empty());
}

#[test]
fn an_address_is_found_in_another_case_until_it_is_forgotten() {
    let mut book = AddressBook::new();
    let (anna, _) = book.intern("Anna.B@example.org").unwrap();
    let (other, _) = book.intern("ANNA.b@example.org").unwrap();
    book.intern("anna.b@example.org").unwrap();
    let found = |book: &AddressBook, text: &str| book.spellings(text).collect::<Vec<_>>();
    assert_eq!(found(&book, "anna.b@example.org"), [anna, other], "what has no capitals is found by its text");
    assert_eq!(found(&book, "aNNa.B@example.org"), [anna, other]);
    assert_eq!(found(&book, "anna.c@example.org"), []);
    assert_eq!(book.with_capitals().iter().collect::<Vec<_>>(), [anna.0, other.0]);
    book.forget(anna);
    assert_eq!(book.with_capitals().iter().collect::<Vec<_>>(), [other.0]);
    assert_eq!(found(&book, "anna.b@example.org"), [other]);
    book.forget(other);
    assert_eq!((found(&book, "anna.b@example.org"), book.spellings.heap_bytes() > 0), (vec![], true));
}

/// The cost, the number of texts compared, is the same for ten addresses of a domain as for very many.
#[test]
fn a_look_up_in_another_case_does_not_depend_on_how_many_there_are() {
    for addresses in [10, 200_000] {
        let mut book = AddressBook::new();
        for n in 0..addresses {
            book.intern(&format!("Reader{n}@example.org")).unwrap();
        }
        let looked_at = |text: &str| {
            let seen = std::cell::Cell::new(0);
            let found = book.spellings.of(book.folded_hash(text), |id| {
                seen.set(seen.get() + 1);
                book.text(AddressId(id)).eq_ignore_ascii_case(text)
            });
            (found.count(), seen.get())
        };
        assert_eq!(looked_at("reader7@example.org"), (1, 1), "{addresses}");
        assert_eq!(looked_at("stranger@example.org"), (0, 0), "{addresses}");
    }
    // Nor does it depend on how many spellings of one address there are.
    let mut book = AddressBook::new();
    for n in 0..1u32 << 10 {
        let text: String = (0..10).map(|bit| if n >> bit & 1 == 1 { 'A' } else { 'a' }).collect();
        book.intern(&format!("{text}@example.org")).unwrap();
    }
    assert_eq!(book.spellings("aaaaaaaaaa@example.org").count(), spelling::SPELLINGS_MAX);
    assert_eq!(book.with_capitals().len(), (1 << 10) - 1);
}

#[test]
fn a_forgotten_id_is_given_out_again() {
    let mut book = AddressBook::new();
    book.intern("a@x").unwrap();
    let (b, _) = book.intern("b@x").unwrap();
    book.forget(b);
    book.forget(b);
    assert_eq!((book.lookup("b@x"), book.text(b), book.len()), (None, "", 1));
    assert_eq!(book.intern("c@y"), Some((b, true)));
    assert_eq!(book.intern("d@y"), Some((AddressId(2), true)));
    assert_eq!((ids_of(&book, "x"), ids_of(&book, "y")), (vec![0], vec![1, 2]));
}

#[test]
fn replay_names_the_ids() {
    let mut book = AddressBook::new();
    assert!(book.intern_at(AddressId(5), "e@x"));
    assert!(!book.intern_at(AddressId(5), "e@x"));
    assert!(book.intern_at(AddressId(2), "c@x"));
    assert!(!book.intern_at(AddressId(u32::MAX), "z@x"));
    book.reuse_gaps();
    let new: Vec<u32> = ["a@x", "b@x", "d@x", "f@x", "g@x"].iter().map(|t| book.intern(t).unwrap().0.0).collect();
    assert_eq!(new, [0, 1, 3, 4, 6], "gaps first, then the end");
    assert!(book.intern_at(AddressId(5), "other@y"), "the journal is right");
    assert_eq!((book.text(AddressId(5)), book.lookup("e@x")), ("other@y", None));
    assert!(book.intern_at(AddressId(9), "other@y"));
    assert_eq!((book.lookup("other@y"), book.is_interned(AddressId(5))), (Some(AddressId(9)), false));
}

#[test]
fn a_text_too_long_is_refused() {
    let mut book = AddressBook::new();
    assert_eq!(book.intern(&"x".repeat(1 << 14)), None);
    let longest = "x".repeat((1 << 14) - 1);
    let (id, _) = book.intern(&longest).unwrap();
    assert_eq!(book.text(id), longest);
}

#[test]
fn many_addresses_keep_their_texts() {
    let mut book = AddressBook::new();
    let text = |i: u32| format!("subscriber.{i}@domain-{}.example", i % 977);
    for i in 0..20_000 {
        assert_eq!(book.intern(&text(i)), Some((AddressId(i), true)));
    }
    for i in 0..20_000 {
        assert_eq!(book.text(AddressId(i)), text(i));
        assert_eq!(book.lookup(&text(i)), Some(AddressId(i)));
    }
    assert!(book.iter_at(19_998).map(|(id, _)| id.0).eq([19_998, 19_999]));
    assert_eq!((0..977).map(|d| ids_of(&book, &format!("domain-{d}.example")).len()).sum::<usize>(), 20_000);
}

#[test]
fn a_million_addresses_take_sixty_bytes_each() {
    const ADDRESSES: u32 = 200_000;
    let mut book = AddressBook::new();
    for i in 0..ADDRESSES {
        // Texts of 20 octets, 20 to a domain, as in the bench of ten million pending.
        let (id, _) = book.intern(&format!("u{i:06}@d{:05}.example", i % (ADDRESSES / 20))).unwrap();
        assert_eq!(book.text(id).len(), 22);
    }
    let each = book.heap_bytes() / ADDRESSES as usize;
    println!("{each} bytes per address");
    assert!(each <= 64, "{each} bytes per address");
}

#[test]
fn the_texts_of_forgotten_addresses_are_given_back() {
    let mut book = AddressBook::new();
    let text = |i: u32| format!("subscriber.{i}@domain-{}.example", i % 977);
    let ids: Vec<AddressId> = (0..50_000).map(|i| book.intern(&text(i)).unwrap().0).collect();
    let before = book.heap_bytes();
    assert!(!book.compact(10), "nothing to move");
    // One in four stays, evenly spread.
    book.forget_all(&ids.iter().map(|id| id.0).filter(|id| id % 4 != 0).collect());
    assert!(book.compact(100), "there is more");
    assert_eq!(book.intern("while@moving.example").unwrap().0, AddressId(50_000));
    while book.compact(100) {}
    let arena = book.arena.heap_bytes();
    assert!(arena * 2 < 50_000 * 38 * 2 / 3, "{arena} of {before}");
    for i in 0..50_000 {
        assert_eq!(book.lookup(&text(i)).is_some(), i % 4 == 0);
        assert_eq!(book.text(AddressId(i)), if i % 4 == 0 { text(i) } else { String::new() });
    }
    // Space that is reused does not grow.
    for round in 0..20 {
        let ids: IdSet = (0..5_000).map(|i| book.intern(&format!("{round}{}", text(i))).unwrap().0.0).collect();
        book.forget_all(&ids);
        book.begin_releasing();
        book.release();
        while book.compact(1_000) {}
    }
    assert!(book.arena.heap_bytes() < arena + 400_000);
    assert!(book.id_bound() <= 55_001, "{}", book.id_bound());
}

#[test]
fn a_domain_goes_with_its_last_address() {
    let mut book = AddressBook::new();
    let (a, _) = book.intern("a@x").unwrap();
    let (b, _) = book.intern("b@y").unwrap();
    let (x, y) = (book.domain(a), book.domain(b));
    book.site_attempt(x, 1_795_000_000_000, SiteAttempt::Failed);
    book.forget_all(&IdSet::one(a.0));
    assert_eq!(book.emptied_domains(None, 9), [x]);
    assert_eq!(book.domain_lookup("x"), Some(x), "until nobody knows it");
    book.forget_domain(y);
    assert_eq!(book.domain_lookup("y"), Some(y), "it has an address");
    book.forget_domain(x);
    assert_eq!((book.domain_lookup("x"), book.emptied_domains(None, 9)), (None, Vec::new()));
    let (again, _) = book.intern("c@z").unwrap();
    assert_eq!((book.domain(again), book.domain_name(x), book.domains()), (x, "z", 2));
    assert_eq!(book.site_history(x).last_failure(), None);
    book.forget_all(&IdSet::one(b.0));
    let (again, _) = book.intern("bb@y").unwrap();
    assert_eq!((book.domain(again), book.emptied_domains(None, 9)), (y, Vec::new()), "it came back");
}

proptest! {
    #[test]
    fn interning_and_forgetting_match_a_model(ops in vec((any::<bool>(), 0u32..40), 0..200)) {
        let mut book = AddressBook::new();
        let mut model: BTreeMap<String, u32> = BTreeMap::new();
        for (forget, n) in ops {
            let text = format!("user{n}@d{}.example", n % 3);
            match (forget, model.get(&text).copied()) {
                (true, Some(id)) => {
                    book.forget(AddressId(id));
                    model.remove(&text);
                }
                (true, None) => prop_assert_eq!(book.lookup(&text), None),
                (false, known) => {
                    let (id, new) = book.intern(&text).unwrap();
                    prop_assert_eq!(new, known.is_none());
                    prop_assert!(known.is_none_or(|k| k == id.0));
                    prop_assert!(new == model.values().all(|other| *other != id.0));
                    model.insert(text, id.0);
                }
            }
        }
        prop_assert_eq!(book.len(), model.len());
        for (text, id) in &model {
            prop_assert_eq!(book.text(AddressId(*id)), text);
            prop_assert!(ids_of(&book, text.rsplit_once('@').unwrap().1).contains(id));
        }
        prop_assert!(book.iter_at(0).count() == model.len());
    }
}

#[test]
fn an_address_is_found_with_every_next_hop_that_it_has() {
    let mut book = AddressBook::new();
    let plain = book.intern("ann@a.example").unwrap().0;
    let at_gate = book.intern(&at_hop("ann@a.example", "hop:gate")).unwrap().0;
    let bob = book.intern(&at_hop("bob@a.example", "10.0.0.1:25")).unwrap().0;
    let quoted = book.intern("\"x>y\"@b.example").unwrap().0;
    let at_sign = book.intern(&at_hop("\"a\\\"@b>\"@c.example", "error: 550 ask new@d.example, or a>b")).unwrap().0;
    assert_eq!(book.text(at_sign), "\"a\\\"@b>\"@c.example");
    assert_eq!(book.domain_name_alone(book.domain(at_sign)), "c.example");
    assert_eq!(split_hop(book.domain_name(book.domain(at_sign))).1, Some("error: 550 ask new@d.example, or a>b"));
    assert_eq!(book.entries_of("\"a\\\"@b>\"@c.example"), [at_sign]);
    assert_eq!(book.entries_of("ann@a.example"), [plain, at_gate]);
    assert_eq!(book.entries_of("bob@a.example"), [bob]);
    assert_eq!(
        (book.text(at_gate), book.text(bob), book.text(quoted)),
        ("ann@a.example", "bob@a.example", "\"x>y\"@b.example")
    );
    let domains: Vec<_> = book.domains_named("a.example").collect();
    assert_eq!(domains, [book.domain(plain), book.domain(at_gate), book.domain(bob)]);
    assert!(domains.iter().all(|domain| book.domain_name_alone(*domain) == "a.example"));
    let gate = book.domain(at_gate);
    book.forget(at_gate);
    book.forget_domain(gate);
    assert_eq!(book.entries_of("ann@a.example"), [plain]);
    assert_eq!(book.domains_named("a.example").count(), 2);
    book.forget(bob);
    book.forget_domain(domains[2]);
    assert_eq!(book.domains_named("a.example").count(), 1);
}
