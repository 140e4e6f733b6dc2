//! `cidr:`: networks in the order of their lines; the first that contains the address wins. `!` negates, `if` and
//! `endif` form blocks.
//!
//! Promise: a run of plain networks takes one lookup per prefix length, however many networks it has. A rule never
//! matches an address of the other family, negated or not, as in Postfix.

use std::collections::HashMap;
use std::net::IpAddr;
use std::str::FromStr;

use foldhash::fast::FixedState;

use crate::diagnostic::{FileReport, TableProblem};
use crate::rule_lines::{Blocks, Statement};
use crate::text::lines::{Lines, is_space, trim_end, trim_start};

#[derive(Debug, Default)]
pub(crate) struct Cidr {
    steps: Vec<Step>,
    rules: Vec<Rule>,
    values: Vec<u8>,
}

#[derive(Debug)]
enum Step {
    Run(Run),
    /// A rule `!network`.
    Except {
        network: Network,
        rule: u32,
    },
    /// Continues at `end` unless the test matches.
    If {
        network: Network,
        is_negated: bool,
        end: usize,
    },
}

/// Position of the value, and the line.
#[derive(Debug)]
struct Rule {
    begin: u32,
    bytes: u32,
    line: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Network {
    is_v6: bool,
    length: u8,
    /// The address with its first bit on top, for both families.
    bits: u128,
}

/// An address in the form of networks.
#[derive(Clone, Copy)]
struct Address {
    is_v6: bool,
    bits: u128,
}

#[derive(Debug, Default)]
struct Run {
    first_rule: HashMap<Network, u32, FixedState>,
    lengths_v4: Vec<u8>,
    lengths_v6: Vec<u8>,
}

impl Run {
    fn add(&mut self, network: Network, rule: u32) {
        self.first_rule.entry(network).or_insert(rule);
        let lengths = if network.is_v6 { &mut self.lengths_v6 } else { &mut self.lengths_v4 };
        if !lengths.contains(&network.length) {
            lengths.push(network.length);
        }
    }

    fn find(&self, address: Address) -> Option<u32> {
        let lengths = if address.is_v6 { &self.lengths_v6 } else { &self.lengths_v4 };
        let network = |&length: &u8| self.first_rule.get(&Network::of(address, length));
        lengths.iter().filter_map(network).min().copied()
    }
}

impl Network {
    fn of(address: Address, length: u8) -> Self {
        Self { is_v6: address.is_v6, length, bits: address.bits & mask(length) }
    }

    fn holds(&self, address: Address) -> bool {
        Self::of(address, self.length) == *self
    }
}

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

fn address(text: &[u8]) -> Option<Address> {
    Some(match IpAddr::from_str(std::str::from_utf8(text).ok()?).ok()? {
        IpAddr::V4(address) => Address { is_v6: false, bits: u128::from(u32::from(address)) << 96 },
        IpAddr::V6(address) => Address { is_v6: true, bits: u128::from(address) },
    })
}

impl Cidr {
    pub fn read(text: &[u8], report: &mut FileReport<'_>) -> Self {
        let mut cidr = Self::default();
        let (mut lines, mut blocks) = (Lines::new(text), Blocks::default());
        while let Some((number, line)) = lines.next(report) {
            let added = match Statement::parse(trim_end(line)) {
                Statement::If(rest) => cidr.begin_block(rest, number, &mut blocks, report),
                Statement::EndIf(rest) => {
                    if !rest.is_empty() {
                        report.add(number, TableProblem::Untidy("unexpected text after endif, ignored"));
                    }
                    match blocks.end() {
                        Some(step) => cidr.end_block(step),
                        None => report.add(number, TableProblem::BadRule("endif without if".into())),
                    }
                    Ok(())
                }
                Statement::Other(rule) => cidr.add(rule, number),
            };
            if let Err(why) = added {
                report.add(number, TableProblem::BadRule(why));
            }
            if cidr.rules.len() >= crate::ENTRIES_MAX || cidr.values.len() > u32::MAX as usize - crate::LINE_BYTES_MAX {
                report.add(number, TableProblem::TooManyEntries { max: crate::ENTRIES_MAX });
                break;
            }
        }
        for line in blocks.left_open() {
            report.add(line, TableProblem::Untidy("if without endif extends to the end of the file"));
        }
        cidr
    }

    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub fn bytes(&self) -> usize {
        let run = |step: &Step| match step {
            Step::Run(run) => run.first_rule.capacity() * (size_of::<(Network, u32)>() + 1),
            _ => 0,
        };
        self.values.capacity()
            + self.rules.capacity() * size_of::<Rule>()
            + self.steps.capacity() * size_of::<Step>()
            + self.steps.iter().map(run).sum::<usize>()
    }

    /// The value and line of the first rule that contains the address; `None` if the key is not an address.
    pub fn get(&self, key: &[u8]) -> Option<(&[u8], u32)> {
        let address = address(key)?;
        let mut at = 0;
        while let Some(step) = self.steps.get(at) {
            at += 1;
            let found = match step {
                Step::Run(run) => run.find(address),
                Step::Except { network, rule } => {
                    (network.is_v6 == address.is_v6 && !network.holds(address)).then_some(*rule)
                }
                Step::If { network, is_negated, end } => {
                    if network.is_v6 != address.is_v6 || network.holds(address) == *is_negated {
                        at = *end;
                    }
                    None
                }
            };
            if let Some(rule) = found {
                let rule = &self.rules[rule as usize];
                let begin = rule.begin as usize;
                return Some((&self.values[begin..begin + rule.bytes as usize], rule.line));
            }
        }
        None
    }

    fn add(&mut self, line: &[u8], number: u32) -> Result<(), String> {
        let pattern_bytes = line.iter().position(|&byte| is_space(byte)).unwrap_or(line.len());
        let (pattern, value) = line.split_at(pattern_bytes);
        let value = trim_start(value);
        let (network, is_negated) = network(pattern)?;
        if value.is_empty() {
            return Err("network without a value".into());
        }
        let rule = self.rules.len() as u32;
        self.rules.push(Rule { begin: self.values.len() as u32, bytes: value.len() as u32, line: number });
        self.values.extend_from_slice(value);
        if is_negated {
            self.steps.push(Step::Except { network, rule });
        } else if let Some(Step::Run(run)) = self.steps.last_mut() {
            run.add(network, rule);
        } else {
            let mut run = Run::default();
            run.add(network, rule);
            self.steps.push(Step::Run(run));
        }
        Ok(())
    }

    fn begin_block(
        &mut self,
        rest: &[u8],
        number: u32,
        blocks: &mut Blocks,
        report: &mut FileReport<'_>,
    ) -> Result<(), String> {
        let pattern_bytes = rest.iter().position(|&byte| is_space(byte)).unwrap_or(rest.len());
        let (network, is_negated) = network(&rest[..pattern_bytes])?;
        if pattern_bytes < rest.len() {
            report.add(
                number,
                TableProblem::Untidy("unexpected text after if, ignored; do not indent the lines of a block"),
            );
        }
        blocks.begin(self.steps.len(), number);
        self.steps.push(Step::If { network, is_negated, end: usize::MAX });
        Ok(())
    }

    /// The next rule starts a new run: the block's last run must not lead to it.
    fn end_block(&mut self, step: usize) {
        self.steps.push(Step::Run(Run::default()));
        let behind = self.steps.len() - 1;
        if let Some(Step::If { end, .. }) = self.steps.get_mut(step) {
            *end = behind;
        }
    }
}

/// Parses `!`, brackets, address, `/length`.
fn network(pattern: &[u8]) -> Result<(Network, bool), String> {
    let text = std::str::from_utf8(pattern).map_err(|_| "not an address".to_owned())?;
    let bare = text.trim_start_matches('!');
    let is_negated = (text.len() - bare.len()) % 2 == 1;
    if bare.is_empty() {
        return Err("missing address".into());
    }
    // Both [address]/length and [address/length].
    let unbracketed = match bare.strip_prefix('[') {
        None => bare.to_owned(),
        Some(rest) => match rest.split_once(']') {
            None => return Err(format!("missing ']' in {bare}")),
            Some((inside, behind)) if behind.is_empty() || (behind.starts_with('/') && !inside.contains('/')) => {
                format!("{inside}{behind}")
            }
            Some(_) => return Err(format!("unexpected text after ']' in {bare}")),
        },
    };
    let (host, length) = match unbracketed.split_once('/') {
        Some((host, length)) => (host, Some(length)),
        None => (unbracketed.as_str(), None),
    };
    let address = address(host.as_bytes()).ok_or_else(|| format!("{host:?} is not an address"))?;
    let longest = if address.is_v6 { 128 } else { 32 };
    let length = match length {
        None => longest,
        Some(text) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => text
            .parse()
            .ok()
            .filter(|length| *length <= longest)
            .ok_or_else(|| format!("prefix /{text} is too long"))?,
        Some(text) => return Err(format!("prefix /{text} is not a number")),
    };
    let network = Network::of(address, length);
    if network.bits != address.bits {
        let first = if network.is_v6 {
            std::net::Ipv6Addr::from(network.bits).to_string()
        } else {
            std::net::Ipv4Addr::from((network.bits >> 96) as u32).to_string()
        };
        return Err(format!("{bare} is not a network, because host bits are set; write {first}/{length}"));
    }
    Ok((network, is_negated))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::diagnostic::LoadReport;

    fn read(text: &str) -> (Cidr, Vec<u32>) {
        let mut report = LoadReport::default();
        let cidr = Cidr::read(text.as_bytes(), &mut FileReport { file: "t", report: &mut report });
        (cidr, report.diagnostics.iter().map(|found| found.line).collect())
    }

    fn value(cidr: &Cidr, key: &str) -> Option<(String, u32)> {
        cidr.get(key.as_bytes()).map(|(value, line)| (String::from_utf8(value.to_vec()).unwrap(), line))
    }

    /// Compares with the answers of Debian's postmap 3.7 for the same file.
    #[test]
    fn it_answers_as_postmap() {
        let (cidr, lines) = read(
            "1.2.3.0/24 a\n1.2.3.4/24 bad\n!10.0.0.0/8 not10\nif 10.1.0.0/16\n10.1.2.3 x\n10.1.0.0/16 y z \nendif\n\
             ::/0 six\n[1.2.3.4] br\n[10.9.0.0]/16 brm\n10.0.0.0/08 lz\n10.2.0.0/+15 p\n1.2.3 short\n\
             ::ffff:1.2.3.4 mapped\n if 1.1.1.1\n",
        );
        for (key, expected) in [
            ("1.2.3.4", Some(("a", 1))),
            ("10.1.2.3", Some(("x", 5))),
            ("10.1.9.9", Some(("y z", 6))),
            ("10.9.1.1", Some(("brm", 10))),
            ("2001:db8::1", Some(("six", 8))),
            ("10.200.1.1", Some(("lz", 11))),
            ("9.9.9.9", Some(("not10", 3))),
            ("foo", None),
            ("01.2.3.4", None),
            ("::ffff:1.2.3.4", Some(("six", 8))),
        ] {
            assert_eq!(value(&cidr, key), expected.map(|(value, line)| (value.to_owned(), line)), "{key}");
        }
        assert_eq!(lines, [2, 12, 13]);
    }

    #[test]
    fn blocks_nest_and_may_stay_open() {
        let (cidr, lines) = read(
            "if 10.0.0.0/8\nif !10.1.0.0/16\n10.0.0.0/9 low\nendif\n10.1.0.0/16 one\nendif x\nendif\n10.0.0.0/8 rest\n\
             if 11.0.0.0/8\n0.0.0.0/0 any\n",
        );
        assert_eq!(value(&cidr, "10.2.0.0"), Some(("low".into(), 3)));
        assert_eq!(value(&cidr, "10.1.0.0"), Some(("one".into(), 5)));
        assert_eq!(value(&cidr, "10.200.0.0"), Some(("rest".into(), 8)));
        assert_eq!((value(&cidr, "11.0.0.1"), value(&cidr, "12.0.0.1")), (Some(("any".into(), 10)), None));
        assert_eq!(lines, [6, 7, 9]);
    }

    #[test]
    fn a_mistake_says_what_to_write() {
        assert!(network(b"1.2.3.4/24").unwrap_err().ends_with("write 1.2.3.0/24"));
        assert!(network(b"2001:db8::1/32").unwrap_err().ends_with("write 2001:db8::/32"));
        assert_eq!(network(b"!![10.0.0.0/8]").map(|(_, is_negated)| is_negated), Ok(false));
    }

    proptest! {
        /// Compares the runs with the rules one by one.
        #[test]
        fn the_first_rule_wins(
            rules in proptest::collection::vec((any::<bool>(), 0_u32..16, 28_u8..=32), 1..60),
            key in 0_u32..16,
        ) {
            let mut text = String::new();
            for (at, (is_negated, address, length)) in rules.iter().enumerate() {
                let not = if *is_negated && at % 7 == 0 { "!" } else { "" };
                let network = std::net::Ipv4Addr::from(address & (u32::MAX << (32 - length)));
                writeln!(text, "{not}{network}/{length} {at}").unwrap();
            }
            let (cidr, _) = read(&text);
            let expected = rules.iter().enumerate().find(|(at, (is_negated, address, length))| {
                let holds = (address ^ key) & (u32::MAX << (32 - length)) == 0;
                holds != (*is_negated && at % 7 == 0)
            });
            let key = std::net::Ipv4Addr::from(key).to_string();
            prop_assert_eq!(value(&cidr, &key), expected.map(|(at, _)| (at.to_string(), at as u32 + 1)));
        }

        #[test]
        fn no_octets_are_too_much(text in "(if |endif|!|[0-9a-f.:/]{0,12}| |\n|x)*", key in "[0-9a-f.:]{0,12}") {
            read(&text).0.get(key.as_bytes());
        }
    }
}
