//! The console's pages and forms without a browser: what asks for confirmation, what says that something is missing,
//! and where a login leads. What a browser makes of them is in `console.rs`.

use stentor_harness::{Answer, Server, wait_until};

use crate::http_auth::hash;
use crate::kit::bare;

const PASSWORD: &str = "correct horse battery";
/// Subject and author in encoded words; the page must show the markup as text.
const POST: &str = "Subject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?= <b>x</b>\r\nFrom: =?utf-8?B?QW5uIMOWLg==?= <ann@home.example>\r\n\r\nHello\r\n";

/// A server with two messages that wait: a post to two subscribers and a message to one recipient; and the post's id.
fn waiting() -> (Server, String) {
    let server = bare()
        .list("news", &["ann@one.example", "bob@two.example"])
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("http.password_hash", &format!("{:?}", hash(PASSWORD)))
        .start();
    let send = |to: &str| server.smtp().send("me@home.example", &[to], POST.as_bytes()).expect(250).queue_id();
    let post = send("news@lists.test");
    send("cid@one.example");
    (server, post)
}

/// A person's browser: the session's cookie and the token that its forms have.
struct Browser<'a> {
    server: &'a Server,
    cookie: String,
    csrf: String,
}

impl<'a> Browser<'a> {
    fn log_in(server: &'a Server) -> Browser<'a> {
        let form = format!("password={}&next=%2Fqueue", PASSWORD.replace(' ', "+"));
        let answer = server.http("POST", "/login").body("application/x-www-form-urlencoded", form.as_bytes());
        let answer = answer.send().expect(303);
        assert_eq!(answer.header("location"), Some("/queue"));
        let cookie = answer.header("set-cookie").and_then(|all| all.split(';').next()).expect("a session").to_owned();
        let mut browser = Browser { server, cookie, csrf: String::new() };
        let page = browser.get("/queue");
        let csrf = page.split("name=\"csrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        csrf.expect("a form").clone_into(&mut browser.csrf);
        browser
    }

    fn get(&self, path: &str) -> String {
        self.server.http("GET", path).header("Cookie", &self.cookie).send().expect(200).text()
    }

    fn act(&self, fields: &str) -> Answer {
        let form = format!("csrf={}&next=%2Fqueue&{fields}", self.csrf);
        let ask = self.server.http("POST", "/act").header("Cookie", &self.cookie);
        ask.body("application/x-www-form-urlencoded", form.as_bytes()).send()
    }

    /// What the page after a form says, encoded as in its cookie.
    fn said(answer: &Answer) -> String {
        answer.header("set-cookie").unwrap_or_default().to_owned()
    }
}

#[test]
fn what_cannot_be_undone_is_counted_first() {
    let (server, post) = waiting();
    let browser = Browser::log_in(&server);
    let asked = browser.act(&format!("verb=remove&id={post}")).expect(200).text();
    assert!(asked.contains("Remove 2 recipients of 1 message?"), "{asked}");
    assert_eq!(server.queue()["messages"], 2, "nothing is removed yet");
    let nothing = browser.act("verb=remove").expect(303);
    assert!(Browser::said(&nothing).contains("No%20message%20is%20selected"), "{}", Browser::said(&nothing));
    let everything = browser.act("verb=remove&scope=matching").expect(303);
    assert!(Browser::said(&everything).contains("No%20filter%20is%20set"), "{}", Browser::said(&everything));
    let of_list = browser.act("verb=hold&scope=matching&list=news").expect(200).text();
    assert!(of_list.contains("Hold 1 message with 2 recipients?"), "{of_list}");
    let flush = browser.act("verb=flush").expect(200).text();
    assert!(flush.contains("Try 3 recipients of 2 messages at"), "{flush}");
    let more = browser.act(&format!("verb=remove&id={post}&sure=1&counted=1")).expect(200).text();
    assert!(more.contains("Remove 2 recipients of 1 message?"), "one was confirmed, and there are two: {more}");
    browser.act(&format!("verb=remove&id={post}&sure=1&counted=2")).expect(303);
    assert_eq!(server.queue()["messages"], 1);
    let audit = browser.get("/audit");
    assert!(audit.contains("remove") && audit.contains("2 recipients"), "{audit}");
    // One message is held at once; another site's page can do none of this.
    let form = format!("csrf=wrong&verb=remove&id={post}&sure=1");
    let forged = server.http("POST", "/act").header("Cookie", &browser.cookie);
    forged.body("application/x-www-form-urlencoded", form.as_bytes()).send().expect(403);
}

/// An action on many recipients has a page that shows how far it is, until it leads to where its form was.
#[test]
fn an_action_on_many_recipients_shows_its_progress() {
    let (server, post) = waiting();
    let many: Vec<String> = (0..600).map(|n| format!("user{n}@two.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    server.smtp().send("me@home.example", &many, POST.as_bytes()).expect(250);
    let browser = Browser::log_in(&server);
    let fields = "verb=remove&scope=matching&recipient=@two.example&sure=1&counted=601";
    let answer = browser.act(fields).expect(303);
    let page = answer.header("location").expect("a page").to_owned();
    assert!(page.starts_with("/action?number="), "{page}");
    wait_until("it is over", || {
        let answer = server.http("GET", &page).header("Cookie", &browser.cookie).send();
        if answer.status == 200 {
            assert_eq!(answer.header("refresh"), Some("1"));
            let text = answer.text();
            assert!(text.contains("Remove under way") && text.contains("<progress max=\"601\""), "{text}");
            return false;
        }
        let answer = answer.expect(303);
        assert_eq!(answer.header("location"), Some("/queue"));
        assert!(Browser::said(&answer).contains("601%20recipients"), "{}", Browser::said(&answer));
        true
    });
    assert_eq!(server.queue()["recipients"], 2);
    server.http("GET", "/action?number=77").header("Cookie", &browser.cookie).send().expect(404);
    // Of a few recipients it is done at once.
    let answer = browser.act(&format!("verb=remove&id={post}&sure=1&counted=1")).expect(303);
    assert_eq!(answer.header("location"), Some("/queue"));
}

#[test]
fn a_click_removes_what_was_counted_and_no_mail_that_came_later() {
    let (server, _) = waiting();
    let send = |to: &str| server.smtp().send("me@home.example", &[to], POST.as_bytes()).expect(250).queue_id();
    let (counted, at_site) = (send("dan@one.example"), "verb=remove&scope=matching&recipient=@one.example");
    let browser = Browser::log_in(&server);
    let asked = browser.act(at_site).expect(200).text();
    assert!(asked.contains("Remove 3 recipients of 3 messages?"), "{asked}");
    let as_of = asked.split("name=\"as_of\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
    let as_of = as_of.expect("the form has the queue that was counted");
    // As many go as come, so that the count alone tells nothing.
    browser.act(&format!("verb=remove&id={counted}&sure=1&counted=1")).expect(303);
    let later = send("eve@one.example");
    let done = browser.act(&format!("{at_site}&sure=1&counted=3&as_of={as_of}")).expect(303);
    assert!(Browser::said(&done).contains("2%20recipients%20of%202%20messages"), "{}", Browser::said(&done));
    assert!(browser.get(&format!("/messages/{later}")).contains("eve<wbr>@one"), "it came after the count");
    // All that was counted has gone: nothing is left to do.
    let nothing = browser.act(&format!("{at_site}&sure=1&counted=3&as_of={as_of}")).expect(303);
    assert!(Browser::said(&nothing).contains("0%20recipients"), "{}", Browser::said(&nothing));
    assert!(browser.get(&format!("/messages/{later}")).contains("eve<wbr>@one"));
    let damaged = browser.act(&format!("{at_site}&sure=1&counted=3&as_of=x")).expect(303);
    assert!(Browser::said(&damaged).contains("The%20form%20is%20damaged"), "{}", Browser::said(&damaged));
}

#[test]
fn a_recipients_page_says_why_its_mail_waits() {
    let (server, post) = waiting();
    let browser = Browser::log_in(&server);
    let waits = || {
        let page = browser.get("/recipient?address=bob@two.example");
        page.split("id=\"waits\"").nth(1).and_then(|rest| rest.split("</section>").next()).expect("a panel").to_owned()
    };
    browser.act(&format!("verb=hold&id={post}")).expect(303);
    assert!(server.operator_text(&["status"]).contains("(1 held)"));
    let held = waits();
    assert!(held.contains("held by an operator") && !held.contains("Next try"), "{held}");
    browser.act(&format!("verb=release&id={post}")).expect(303);
    browser.act("verb=suspend&list=news").expect(303);
    let page = || browser.get("/recipient?address=bob@two.example");
    assert!(!page().contains("Suppressions"));
    server.operator_text(&["suppress", "add", "@two.example", "--reason", "bounce", "--for", "30d", "--list", "news"]);
    let page = page();
    assert!(page.contains("Suppressions") && page.contains("list:news") && page.contains("bounce"), "{page}");
    let suspended = waits();
    assert!(suspended.contains("suspended by an operator") && !suspended.contains("Next try"), "{suspended}");
}

const PAGES: [&str; 15] = [
    "/",
    "/queue",
    "/posts",
    "/stragglers",
    "/lists",
    "/sites",
    "/dmarc",
    "/days",
    "/statistics",
    "/storage",
    "/webhooks",
    "/audit",
    "/quarantine",
    "/users",
    "/configuration",
];

#[test]
fn pages_say_what_they_have_and_what_they_have_not() {
    let (server, post) = waiting();
    let browser = Browser::log_in(&server);
    for page in ["/posts".to_owned(), format!("/messages/{post}")] {
        let text = browser.get(&page);
        assert!(text.contains("Grüße &lt;b&gt;x&lt;/b&gt;") && text.contains("Ann Ö."), "{page}: {text}");
    }
    let queue = browser.get("/queue");
    assert!(queue.contains("ann<wbr>@one.<wbr>example") && queue.contains("and 1 more"), "{queue}");
    // A site's recipients alone, of a message that has others.
    let part = browser.get("/queue?site=two.example");
    assert!(part.contains("Recipients matching") && part.contains("1 elsewhere"), "{part}");
    assert!(part.contains("of 1 message; 3 in the whole queue") && !part.contains("and 1 more"), "{part}");
    let unknown = server.http_get("/no-such-page").expect(404);
    assert!(unknown.text().contains("Page not found") && unknown.text().contains("href=\"/queue\""));
    assert_eq!(server.http_get("/api/v1/none").expect(404).json()["error"]["code"], "not_found");
    assert!(server.http_get("/messages/none").expect(400).text().contains("Invalid queue ID"));
    let configuration = browser.get("/configuration");
    assert!(configuration.contains("password_hash") && !configuration.contains("argon2id"), "{configuration}");
    let others = server.http_get("/configuration?keys=all").expect(403).text();
    assert!(others.contains("only to operators who can make changes") && !others.contains("data_dir"), "{others}");
    // Whoever is logged in sees every page; who is not sees all but those of names and secrets.
    for page in PAGES {
        assert!(browser.get(page).contains("<h1>"), "{page}");
        let is_secret = ["/users", "/configuration"].contains(&page);
        server.http_get(page).expect(if is_secret { 403 } else { 200 });
    }
    let picture = server.http_get("/statistics.svg?by=site&hours=24").expect(200);
    assert_eq!(picture.header("content-type"), Some("image/svg+xml"));
    assert!(picture.text().contains("<svg") && picture.text().contains("delivered"));
}

#[test]
fn a_login_goes_on_where_one_wanted_to_be() {
    let server = bare()
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("http.reading", "\"login\"")
        .set("http.password_hash", &format!("{:?}", hash(PASSWORD)))
        .start();
    let wanted = server.http_get("/queue?list=news").expect(303);
    assert_eq!(wanted.header("location"), Some("/login?next=%2Fqueue%3Flist%3Dnews"));
    let form = |text: &str| {
        let ask = server.http("POST", "/login").header("Accept", "text/html");
        ask.body("application/x-www-form-urlencoded", text.as_bytes()).send()
    };
    let wrong = form("user=operator&password=wrong&next=%2Fqueue").expect(303);
    assert_eq!(wrong.header("location"), Some("/login?failed=wrong&user=operator&next=%2Fqueue"));
    let again = server.http_get("/login?failed=wrong&user=%22%3E%3Cb%3E&next=%2Fqueue").expect(200).text();
    assert!(again.contains("Wrong user name or password") && !again.contains("\"><b>"), "{again}");
    // A form of a session that has ended.
    let host = server.http_address().to_string();
    let ended = |referer: &str| {
        let ask = server.http("POST", "/act").header("Accept", "text/html").header("Host", &host);
        let ask = ask.header("Referer", referer);
        ask.body("application/x-www-form-urlencoded", b"verb=flush").send().expect(303)
    };
    let place = ended(&format!("http://{host}/sites?rows=5"));
    assert_eq!(place.header("location"), Some("/login?failed=expired&next=%2Fsites%3Frows%3D5"));
    assert_eq!(ended("http://evil.example/sites").header("location"), Some("/login?failed=expired"));
}
