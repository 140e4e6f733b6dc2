//! Lists and their members: requests that make, change and show them, and the rows of the answers.
//!
//! Names, addresses and texts are checked by the server, which knows their forms.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stentor_queue::ids::Ms;

/// Members of one request at most.
pub const MEMBERS_MAX: usize = 1_000;
/// Default and maximum rows of one answer.
pub const ROWS_DEFAULT: u32 = 50;
pub const ROWS_MAX: u32 = 1_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RosterRequest {
    /// All lists.
    Lists,
    /// One list with its keys.
    Show(ListName),
    Create(NewList),
    Set(ListChange),
    /// Deletes a list, with its members.
    Delete(ListName),
    Members(MemberOptions),
    /// Adds members.
    Add(NewMembers),
    Remove(MemberRemoval),
    SetDelivery(DeliverySetting),
    /// All about a person: lists, and how the person joined and left them.
    Person(PersonOptions),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

/// Names a list.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct ListName {
    /// The list.
    pub name: String,
}

/// A list to make.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct NewList {
    /// Name of the list.
    pub name: String,
    /// Where posts are sent.
    pub address: String,
    /// Recipient of bounces and notices.
    pub owner: String,
    /// `discussion`, `announce` or `newsletter` (default `discussion`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<String>,
    /// Further keys of `[lists.NAME]`, as TOML or text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
}

/// Keys of a list to change.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct ListChange {
    /// The list.
    pub name: String,
    /// Keys of `[lists.NAME]` with their new values, as TOML or text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
    /// Keys that get their defaults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
}

/// Which members to list.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct MemberOptions {
    /// The list.
    pub list: String,
    /// Continue after this address: `next` of the previous answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Maximum number of members returned.
    #[serde(default = "rows_default")]
    pub rows_max: u32,
}

fn rows_default() -> u32 {
    ROWS_DEFAULT
}

/// Members to add.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct NewMembers {
    /// The list.
    pub list: String,
    /// The members, at most 1000.
    pub members: Vec<NewMember>,
    /// Add those who left or complained, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// The file or program that they come from; replaces the requester as source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// A member to add.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct NewMember {
    /// The person's address.
    pub address: String,
    /// The person's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `mail` or `none` (default `mail`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// When the person joined (default: now).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<Ms>,
}

/// Members to remove.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct MemberRemoval {
    /// The list.
    pub list: String,
    /// Their addresses, at most 1000.
    pub addresses: Vec<String>,
    /// Recorded in the journal's audit record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Which posts members get.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct DeliverySetting {
    /// The list.
    pub list: String,
    /// Their addresses, at most 1000.
    pub addresses: Vec<String>,
    /// `mail` or `none`.
    pub delivery: String,
}

/// A person.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct PersonOptions {
    /// The person's address.
    pub address: String,
}

/// The reply to `stentor list`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct ListTable {
    /// Rows in the order of their names.
    pub rows: Vec<ListOverview>,
}

/// A list.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct ListOverview {
    /// The list.
    pub name: String,
    /// Where posts are sent.
    pub address: String,
    /// Recipient of bounces and notices; empty: none.
    pub owner: String,
    /// `anyone`, `members`, or the addresses that may post.
    pub post: String,
    /// Members, also those without posts; `None`: the subscribers file was not read yet.
    pub members: Option<u64>,
    /// `registry`, or the path of the subscribers file.
    pub members_in: String,
    /// Made by `stentor list create`; others are in the configuration file.
    pub is_made: bool,
    /// Keys of a list that was made, as TOML. Only for one list.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, String>,
}

/// The reply to `stentor member list`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct MemberTable {
    pub now: Ms,
    /// All members of the list.
    pub members: u64,
    /// Rows in the order of their addresses.
    pub rows: Vec<MemberView>,
    /// The value of `after` for the next rows, if there may be more.
    pub next: Option<String>,
}

/// A member.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct MemberView {
    /// The list.
    pub list: String,
    /// The person's address.
    pub address: String,
    /// The person's name; may be empty.
    pub name: String,
    /// `mail` or `none`.
    pub delivery: String,
    /// When the person joined.
    pub joined: Ms,
    /// Who or what made the person a member.
    pub source: String,
}

/// The reply to `stentor member show`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PersonView {
    pub now: Ms,
    /// The person's address.
    pub address: String,
    /// Lists with members in the registry, in the order of their names.
    pub memberships: Vec<MemberView>,
    /// Lists whose subscribers files have the address.
    pub files: Vec<String>,
    /// Ends of memberships, the latest first.
    pub departures: Vec<DepartureView>,
    /// Suppressions of the address and its domain.
    pub suppressions: Vec<crate::SuppressionView>,
}

/// The end of a membership.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct DepartureView {
    /// The list.
    pub list: String,
    /// When the person had joined.
    pub joined: Ms,
    /// Who or what had made the person a member.
    pub joined_source: String,
    /// When the membership ended.
    pub left: Ms,
    /// `unsubscribe`, `complaint`, `bounce` or `operator`.
    pub reason: String,
    /// Who or what ended it.
    pub source: String,
}

impl RosterRequest {
    /// Parses a verb's fields. `None`: another verb.
    ///
    /// # Errors
    /// The error in the fields.
    pub fn of_json(verb: &str, fields: Value) -> Option<Result<RosterRequest, String>> {
        fn parsed<T: serde::de::DeserializeOwned>(
            fields: Value,
            request: impl FnOnce(T) -> RosterRequest,
        ) -> Result<RosterRequest, String> {
            serde_json::from_value(fields).map(request).map_err(|error| error.to_string())
        }
        let request = match verb {
            "lists" => parsed(fields, |NoArguments {}| RosterRequest::Lists),
            "list_show" => parsed(fields, RosterRequest::Show),
            "list_create" => parsed(fields, RosterRequest::Create),
            "list_set" => parsed(fields, RosterRequest::Set),
            "list_delete" => parsed(fields, RosterRequest::Delete),
            "members" => parsed(fields, RosterRequest::Members),
            "member_add" => parsed(fields, RosterRequest::Add),
            "member_remove" => parsed(fields, RosterRequest::Remove),
            "member_set" => parsed(fields, RosterRequest::SetDelivery),
            "member_show" => parsed(fields, RosterRequest::Person),
            _ => return None,
        };
        Some(request.and_then(RosterRequest::checked))
    }

    fn checked(self) -> Result<RosterRequest, String> {
        let members = match &self {
            RosterRequest::Add(new) => new.members.len(),
            RosterRequest::Remove(removal) => removal.addresses.len(),
            RosterRequest::SetDelivery(setting) => setting.addresses.len(),
            RosterRequest::Members(options) if !(1..=ROWS_MAX).contains(&options.rows_max) => {
                return Err(format!("rows_max must be from 1 to {ROWS_MAX}"));
            }
            _ => return Ok(self),
        };
        if (1..=MEMBERS_MAX).contains(&members) {
            Ok(self)
        } else {
            Err(format!("from 1 to {MEMBERS_MAX} members can be given"))
        }
    }

    pub fn verb(&self) -> &'static str {
        match self {
            RosterRequest::Lists => "lists",
            RosterRequest::Show(_) => "list_show",
            RosterRequest::Create(_) => "list_create",
            RosterRequest::Set(_) => "list_set",
            RosterRequest::Delete(_) => "list_delete",
            RosterRequest::Members(_) => "members",
            RosterRequest::Add(_) => "member_add",
            RosterRequest::Remove(_) => "member_remove",
            RosterRequest::SetDelivery(_) => "member_set",
            RosterRequest::Person(_) => "member_show",
        }
    }

    pub fn to_json(&self) -> Map<String, Value> {
        let fields = match self {
            RosterRequest::Lists => return Map::new(),
            RosterRequest::Show(name) | RosterRequest::Delete(name) => serde_json::to_value(name),
            RosterRequest::Create(new) => serde_json::to_value(new),
            RosterRequest::Set(change) => serde_json::to_value(change),
            RosterRequest::Members(options) => serde_json::to_value(options),
            RosterRequest::Add(new) => serde_json::to_value(new),
            RosterRequest::Remove(removal) => serde_json::to_value(removal),
            RosterRequest::SetDelivery(setting) => serde_json::to_value(setting),
            RosterRequest::Person(options) => serde_json::to_value(options),
        };
        // Plain structs with string keys: serialising them cannot fail.
        match fields {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }

    /// Whether it changes nothing.
    pub fn is_query(&self) -> bool {
        matches!(
            self,
            RosterRequest::Lists | RosterRequest::Show(_) | RosterRequest::Members(_) | RosterRequest::Person(_)
        )
    }
}
