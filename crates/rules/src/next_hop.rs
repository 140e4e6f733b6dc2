//! The choice of a next hop: rules, routes and tables in the order of the configuration, the most specific entry of each.

use stentor_mail::reply::Reply;

use crate::action::{Action, ActionError};
use crate::address::Key;
use crate::book::Rulebook;
use crate::decision::{End, MISCONFIGURED, Marks, Pending, UNAVAILABLE, Why, ended};
use crate::explain::{Step, note};
use crate::facts::{Answer, Facts, Field, Subject, Tables};
use crate::hop::NextHop;
use crate::routes::Who;
use crate::rule::action_of;

impl Rulebook {
    /// The next hop, by whom the order asks first.
    pub(crate) fn next_hop(
        &self,
        facts: &Facts<'_>,
        tables: &dyn Tables,
        by_rule: Option<(NextHop, Why)>,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<(NextHop, Why), End> {
        let mut chosen: Option<(NextHop, Why)> = None;
        let (mut by_rule, mut catch_all) = (by_rule, None);
        // Tables are asked for a recipient before the default is, wherever it stands.
        let recipient = self.by(Who::Recipient, facts.recipient, tables, &mut catch_all, steps)?;
        let mut recipient = Some(recipient);
        for who in self.order.iter() {
            if chosen.is_some() && steps.is_none() {
                break;
            }
            let named = match who {
                Who::Rule => by_rule.take(),
                Who::Recipient => recipient.take().flatten(),
                Who::Sender => self.by(Who::Sender, facts.sender, tables, &mut None, steps)?,
                Who::Default => self.default_hop(catch_all.take()),
            };
            let is_first = chosen.is_none();
            note(steps, || {
                let answer = match &named {
                    None => "no next hop".to_owned(),
                    Some((hop, why)) if is_first => format!("next hop {hop}, by {}", self.shown(why)),
                    Some((hop, why)) => format!("{hop}, by {}, lost: others come first in the order", self.shown(why)),
                };
                (format!("routes: {}", who.name()), String::new(), answer)
            });
            if is_first {
                chosen = named;
            }
        }
        Ok(chosen.unwrap_or((NextHop::Mx, Why::Mx)))
    }

    /// The next hop of mail whose recipient has none of its own: what routes and tables have for its domain. Asked when a domain is
    /// looked up, for subscribers and reports too, and for mail that waits.
    ///
    /// # Errors
    /// A table's answer has to be fetched first.
    pub fn domain_hop(&self, domain: &str, tables: &dyn Tables) -> Result<Result<NextHop, Reply>, Pending> {
        if self.recipient_tables.is_empty() {
            return Ok(Ok(self.of_domain(domain).map_or(NextHop::Mx, |entry| entry.hop.clone())));
        }
        let mut catch_all = None;
        match self.by(Who::Recipient, &Key::new(&format!("@{domain}")), tables, &mut catch_all, &mut None) {
            Ok(Some((hop, _))) => Ok(Ok(hop)),
            Ok(None) => Ok(Ok(self.default_hop(catch_all).map_or(NextHop::Mx, |(hop, _)| hop))),
            Err(end) => end.into_reply().map(Err),
        }
    }

    /// What routes and tables have for an address. A table's catch-all for recipients is kept for later.
    fn by(
        &self,
        who: Who,
        key: &Key,
        tables: &dyn Tables,
        catch_all: &mut Option<(NextHop, Why)>,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<Option<(NextHop, Why)>, End> {
        let (routes, ids, field) = match who {
            Who::Sender => (&self.by_sender, &self.sender_tables, Field::Sender),
            _ => (&self.by_recipient, &self.recipient_tables, Field::Recipient),
        };
        let own = routes.find(key).or_else(|| routes.any().filter(|_| who == Who::Sender && ids.is_empty()));
        if let Some(entry) = own {
            return Ok(Some((entry.hop.clone(), Why::Route(who, entry.clone()))));
        }
        for id in ids {
            let found = match tables.ask(*id, field, Subject::Address(key)) {
                Answer::Found(found) => found,
                Answer::NotFound => continue,
                Answer::Pending => return Err(End::Pending),
                Answer::Unavailable(why) => {
                    note(steps, || {
                        (format!("table {}", self.table_name(*id)), String::new(), format!("cannot be asked: {why}"))
                    });
                    return Err(ended(
                        UNAVAILABLE,
                        Why::Table(*id, who, key.as_str().into(), "".into()),
                        Marks::default(),
                    ));
                }
            };
            let why = Why::Table(*id, who, found.key.clone().into(), found.place.clone().into());
            let read = match action_of(self.dialect(*id), &found.value, self.smtp_port) {
                Ok(Action::Route(hop)) => Ok(hop),
                Ok(Action::Dunno) => continue,
                Err(ActionError::Hop(error)) => Err(error),
                _ => NextHop::parse(&found.value, self.smtp_port),
            };
            let hop = match read {
                Ok(hop) => hop,
                Err(error) => {
                    let asked = format!("table {}, {}", self.table_name(*id), found.key);
                    note(steps, || (asked, found.place.clone(), format!("{:?}: {error}", found.value)));
                    return Err(ended(MISCONFIGURED, why, Marks::default()));
                }
            };
            if who == Who::Recipient && matches!(&*found.key, "*" | ".") {
                catch_all.get_or_insert((hop, why));
                continue;
            }
            return Ok(Some((hop, why)));
        }
        let any = routes.any().filter(|_| who == Who::Sender);
        Ok(any.map(|entry| (entry.hop.clone(), Why::Route(who, entry.clone()))))
    }

    fn default_hop(&self, of_table: Option<(NextHop, Why)>) -> Option<(NextHop, Why)> {
        let own = self.by_recipient.any().map(|entry| (entry.hop.clone(), Why::Route(Who::Default, entry.clone())));
        own.or(of_table)
    }
}
