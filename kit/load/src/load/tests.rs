use std::time::Duration;

use stentor_lab::crlf;

use super::arrivals::Arrivals;
use super::client::{Client, Context, Feed, Job, Turn};
use super::content::{Content, Sizes};
use super::people::{Count, People};
use super::plan::{Pipelining, Plan};
use super::tally::{Step, Tally};

const MS: u64 = 1_000_000;

fn plan() -> Plan {
    let mut plan = Plan::new(vec![([127, 0, 0, 1], 25).into()]);
    plan.content = Content::whole(vec![b"A: b\r\n\r\n.dot\r\n".to_vec()]);
    plan.sender = "s@x".to_owned();
    plan.people = People::List(vec!["a@y".to_owned(), "b@y".to_owned()]);
    plan.recipients_per_message = Count::exactly(2);
    plan
}

/// Further messages, for those that are sent ahead.
struct More(u64);

impl Feed for More {
    fn next(&mut self, now_ns: u64, _: &mut Tally) -> Option<Job> {
        self.0 = self.0.checked_sub(1)?;
        Some(job(100 + self.0, now_ns))
    }
}

fn job(number: u64, begun_ns: u64) -> Job {
    Job { number, intended_ns: None, begun_ns }
}

struct Talk {
    plan: Plan,
    client: Client,
    tally: Tally,
    more: More,
    now_ns: u64,
}

impl Talk {
    fn begin(plan: Plan, more: u64) -> Talk {
        let mut client = Client::default();
        client.reset(Some(job(0, 0)));
        client.connected(&plan, 0);
        Talk { plan, client, tally: Tally::default(), more: More(more), now_ns: 0 }
    }

    /// Replies, a millisecond each; what is said then.
    fn hear(&mut self, replies: &str) -> (Turn, String) {
        let mut turn = Turn::Wait;
        for line in replies.lines() {
            self.now_ns += MS;
            if self.client.waits_for() == Some(Step::Ehlo) {
                self.client.offer(&self.plan, line.as_bytes());
            }
            if line.as_bytes()[3] == b'-' {
                continue;
            }
            let code = line[..3].parse().unwrap();
            let (plan, tally, feed) = (&self.plan, &mut self.tally, &mut self.more);
            let mut context = Context { plan, tally, feed, now_ns: self.now_ns };
            turn = self.client.reply(code, line.as_bytes(), &mut context);
        }
        let mut said = Vec::new();
        for slice in self.client.out.slices(&self.plan) {
            said.extend_from_slice(&slice);
        }
        self.client.out.clear();
        (turn, String::from_utf8(said).unwrap())
    }

    fn errors(&self) -> Vec<(String, u64)> {
        let each = self.tally.errors.iter();
        each.map(|(failure, failed)| (format!("{:?} {:?}", failure.step, failure.what), failed.count)).collect()
    }
}

const ENVELOPE: &str = "MAIL FROM:<s@x>\r\nRCPT TO:<a@y>\r\nRCPT TO:<b@y>\r\nDATA\r\n";
const BODY: &str = "A: b\r\n\r\n..dot\r\n.\r\n";

#[test]
fn a_command_at_a_time_where_pipelining_is_not_offered() {
    let mut talk = Talk::begin(plan(), 0);
    let said: Vec<String> =
        ["220 hi", "250 x", "250 ok", "250 ok", "251 ok", "354 go"].map(|r| talk.hear(r).1).to_vec();
    let expected =
        ["EHLO source.lab\r\n", "MAIL FROM:<s@x>\r\n", "RCPT TO:<a@y>\r\n", "RCPT TO:<b@y>\r\n", "DATA\r\n", BODY];
    assert_eq!(said, expected);
    assert_eq!(talk.hear("250 taken").0, Turn::Ready);
    assert_eq!((talk.tally.accepted, talk.tally.recipients, talk.tally.octets), (1, 2, 14));
    assert_eq!(talk.tally.transaction.greatest(), 5 * MS);
    assert_eq!(talk.tally.steps[Step::Final as usize].greatest(), MS);
}

#[test]
fn commands_go_together_and_ahead() {
    let mut talk = Talk::begin(Plan { pipelining: Pipelining::Ahead, ..plan() }, 1);
    talk.hear("220 hi");
    assert_eq!(talk.hear("250-x\n250 PIPELINING").1, ENVELOPE);
    let (_, said) = talk.hear("250 ok\n250 ok\n250 ok\n354 go");
    assert_eq!(said, format!("{BODY}{ENVELOPE}"));
    assert_eq!(talk.client.open_messages(), 2);
    let (turn, said) = talk.hear("250 taken\n250 ok\n250 ok\n250 ok\n354 go");
    assert_eq!((turn, said.as_str()), (Turn::Wait, BODY));
    assert_eq!(talk.hear("250 taken").0, Turn::Ready);
    assert_eq!((talk.tally.accepted, talk.client.messages, talk.client.open_messages()), (2, 2, 0));
}

#[test]
fn bdat_has_the_exact_length_and_undoubled_dots() {
    let mut talk = Talk::begin(Plan { chunking: true, ..plan() }, 0);
    talk.hear("220 hi");
    let (_, said) = talk.hear("250-x\n250-CHUNKING\n250 PIPELINING");
    assert_eq!(said, ENVELOPE.replace("DATA\r\n", "BDAT 14 LAST\r\nA: b\r\n\r\n.dot\r\n"));
    assert_eq!(talk.hear("250 ok\n250 ok\n250 ok\n250 taken").0, Turn::Ready);
    assert_eq!(talk.tally.accepted, 1);
}

#[test]
fn refusals_are_counted_once_and_end_the_transaction() {
    // All recipients refused, DATA taken all the same: the body is empty.
    let mut talk = Talk::begin(plan(), 0);
    talk.hear("220 hi");
    talk.hear("250-x\n250 PIPELINING");
    assert_eq!(talk.hear("250 ok\n550 no\n550 no\n354 go").1, ".\r\n");
    assert_eq!(talk.hear("554 nobody").0, Turn::Ready);
    assert_eq!((talk.tally.accepted, talk.tally.failed), (0, 1));
    assert_eq!(talk.errors(), [("Rcpt Code(550)".to_owned(), 2)]);
    // MAIL refused.
    let mut talk = Talk::begin(plan(), 0);
    talk.hear("220 hi\n250 x");
    assert_eq!(talk.hear("451 later"), (Turn::Wait, "RSET\r\n".to_owned()));
    assert_eq!(talk.hear("250 ok").0, Turn::Ready);
    assert_eq!((talk.errors(), talk.tally.failed), (vec![("Mail Code(451)".to_owned(), 1)], 1));
    // 421 ends the session with its message.
    let mut talk = Talk::begin(plan(), 0);
    talk.hear("220 hi\n250 x\n250 ok");
    assert_eq!(talk.hear("421 bye").0, Turn::Close);
    assert_eq!(talk.client.open_messages(), 1);
}

#[test]
fn helo_where_ehlo_is_unknown_and_rset_between_messages() {
    let mut talk = Talk::begin(Plan { rset: true, ..plan() }, 0);
    talk.hear("220 hi");
    assert_eq!(talk.hear("502 what").1, "HELO source.lab\r\n");
    assert!(talk.errors().is_empty());
    talk.hear("250 x\n250 ok\n250 ok\n250 ok\n354 go\n250 taken");
    let now_ns = talk.now_ns;
    talk.client.begin(&talk.plan, job(1, now_ns), now_ns);
    let first = String::from_utf8(talk.client.out.slices(&talk.plan)[0].to_vec()).unwrap();
    assert_eq!(first, "RSET\r\n");
    talk.client.out.clear();
    assert_eq!(talk.hear("250 ok").1, "MAIL FROM:<s@x>\r\n");
}

#[test]
fn messages_have_their_size_and_their_sizes_follow_from_the_seed() {
    let content = |sizes| Content::made(sizes, "s@x", "t");
    for size in [300, 1000, 4094, 4095, 4096, 4097, 70_000] {
        for number in [7, 12_345] {
            let message = content(Sizes::Fixed(size)).message(1, number);
            assert_eq!(message.len(), size);
            assert!(message.ends_with(b"\r\n") && crlf(&message) == message, "{size}");
            assert_eq!(stentor_lab::message_id_of(&message), format!("t.{number}@source.lab"));
        }
    }
    let drawn = |text: &str, seed| -> Vec<usize> {
        let sizes = Sizes::parse(text).unwrap();
        (0..2000).map(|number| sizes.of(seed, number)).collect()
    };
    let even = drawn("uniform:1K-64K", 3);
    assert!(even.iter().all(|size| (1024..=65536).contains(size)));
    assert_eq!(even, drawn("uniform:1K-64K", 3));
    assert_ne!(even, drawn("uniform:1K-64K", 4));
    let mut skew = drawn("lognormal:8K,1.2,1M", 3);
    skew.sort_unstable();
    assert!((7000..9500).contains(&skew[1000]) && skew[1999] <= 1 << 20, "{} {}", skew[1000], skew[1999]);
    // Sigma is the distance from the median to the 84th percentile, as a logarithm.
    let sigma = (skew[1682] as f64 / skew[1000] as f64).ln();
    assert!((1.0..1.4).contains(&sigma), "{sigma}");
    for wrong in ["", "x", "4Q", "uniform:9K-1K", "uniform:9K", "lognormal:8K", "lognormal:8K,-1", "9G"] {
        assert!(Sizes::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn recipients_of_a_message_are_different_ones_over_many_domains() {
    let people = People::Random { recipients: 1000, domains: 10 };
    for number in 0..50 {
        let mut all = people.of_message(9, number, 100);
        assert_eq!(all, people.of_message(9, number, 100));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 100);
    }
    let count = Count::parse("1-20").unwrap();
    let drawn: Vec<u32> = (0..1000).map(|number| count.of(5, number)).collect();
    assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&1), Some(&20)));
    assert!(Count::parse("0").is_err() && Count::parse("5-2").is_err() && Count::parse("many").is_err());
}

#[test]
fn a_schedule_is_the_same_however_many_workers_share_it_and_however_late_they_are() {
    let second = Some(Duration::from_secs(1));
    let times = |arrivals: Arrivals, workers: usize| {
        let mut all = Vec::new();
        for worker in 0..workers {
            let mut schedule = arrivals.schedule(7, worker, workers, second).unwrap();
            // All are taken at once, long after their time.
            assert!(schedule.backlog(u64::MAX) > 0);
            while let Some(at) = schedule.take(u64::MAX) {
                all.push(at);
            }
            assert_eq!(schedule.backlog(u64::MAX), 0);
        }
        all.sort_unstable();
        all
    };
    let even = times(Arrivals::Constant(100.0), 1);
    assert_eq!(even, (0..100).map(|n| n * 10 * MS).collect::<Vec<_>>());
    assert_eq!(even, times(Arrivals::Constant(100.0), 4));
    let random = times(Arrivals::Poisson(1000.0), 3);
    assert!((850..1150).contains(&random.len()), "{}", random.len());
    // Independent arrivals: the standard deviation of their distances is their mean.
    let distances: Vec<f64> = random.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = distances.iter().sum::<f64>() / distances.len() as f64;
    let square = distances.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / distances.len() as f64;
    assert!((0.8..1.2).contains(&(square.sqrt() / mean)), "{}", square.sqrt() / mean);
    let mut schedule = Arrivals::Constant(100.0).schedule(7, 0, 1, None).unwrap();
    assert_eq!((schedule.take(0), schedule.take(9 * MS), schedule.backlog(35 * MS)), (Some(0), None, 3));
    assert!(Arrivals::WhenFree.schedule(7, 0, 1, None).is_none());
}

#[test]
fn every_line_ends_in_crlf_and_nothing_is_bare() {
    assert_eq!(crlf(b"a\nb\r\nc\rd"), b"a\r\nb\r\nc\r\nd\r\n");
    assert_eq!(crlf(b"a\r\n\r\n"), b"a\r\n\r\n");
    assert_eq!(crlf(b""), b"");
    assert_eq!(Content::whole(vec![b".".to_vec()]).message(0, 5), b".\r\n");
}
