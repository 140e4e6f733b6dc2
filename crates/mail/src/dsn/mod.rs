//! Delivery status notifications: RFC 3464 reports.
