//! A very small Okapi: asks its auth module about every request, then lets mod-users or mod-permissions of the world handle it.
//!
//! It closes the circle of a real platform: the stand-in's look-ups go through it, and so past the sidecar. Its writes change
//! the world only after the auth module has said yes, as in the real thing. It has no token cache of its own, no system calls,
//! and only the routes below.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::super::headers::Headers;
use super::super::raw::{Answer, Connection, Request};
use super::wire::{Asked, Client, Reply};
use super::{Module, Standin, locked, path};

/// What a route asks for: method, path (`*` stands for one segment), permissions required and desired.
type Route = (&'static str, &'static str, &'static str, &'static str);

const READ_USER: &str = "users.read.restricted,users.read.basic";
const ASSIGN: &str =
    "perms.users.assign.immutable,perms.users.assign.okapi,perms.users.assign.mutable";

const ROUTES: [Route; 10] = [
    ("GET", "/users/*", "users.item.get", READ_USER),
    ("PUT", "/users/*", "users.item.put", ""),
    ("DELETE", "/users/*", "users.item.delete", ""),
    ("GET", "/user-tenants", "user-tenants.collection.get", ""),
    ("GET", "/perms/users/*/permissions", "perms.users.get", ""),
    (
        "POST",
        "/perms/users/*/permissions",
        "perms.users.item.post",
        ASSIGN,
    ),
    (
        "DELETE",
        "/perms/users/*/permissions/*",
        "perms.users.item.delete",
        ASSIGN,
    ),
    (
        "GET",
        "/perms/permissions",
        "perms.permissions.collection.get",
        "",
    ),
    (
        "PUT",
        "/perms/permissions/*",
        "perms.permissions.item.put",
        ASSIGN,
    ),
    (
        "GET",
        "/circulation/loans",
        "circulation.loans.collection.get",
        "",
    ),
];

/// Client headers that Okapi does not hand on to a filter.
const DROPPED: [&str; 4] = ["content-length", "host", "authorization", "x-okapi-token"];

/// A running Okapi. It stops when it is dropped.
#[derive(Debug)]
pub struct Okapi {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    auth: Mutex<Option<SocketAddr>>,
    business: Mutex<Option<Arc<Module>>>,
    idle: Mutex<Vec<Connection>>,
    number: AtomicU32,
}

impl Okapi {
    /// Binds and serves. Until it is connected, it answers 500 to everything.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("an address to listen on");
        let address = listener.local_addr().expect("the address it listens on");
        let shared = Arc::<Shared>::default();
        let acceptor = tokio::spawn(accept(listener, address, Arc::clone(&shared)));
        Self {
            address,
            shared,
            acceptor,
        }
    }

    /// Tells it where its auth module (or the sidecar before it) listens, and whose world it serves.
    pub fn connect(&self, auth: SocketAddr, standin: &Standin) {
        *locked(&self.shared.auth) = Some(auth);
        *locked(&self.shared.business) = Some(standin.module());
        locked(&self.shared.idle).clear();
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The same as a base URL: what the stand-in's look-ups need.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Okapi {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

async fn accept(listener: TcpListener, address: SocketAddr, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            while connections.try_join_next().is_some() {}
            connections.spawn(serve(stream, address, Arc::clone(&shared)));
        }
    }
}

async fn serve(stream: TcpStream, address: SocketAddr, shared: Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut client = Client::new(stream);
    while let Ok(request) = client.next().await? {
        let to = Asked::by(&request);
        let reply = handle(&shared, address, &request)
            .await
            .unwrap_or_else(|error| Reply::text(500, format!("proxyClient failure: {error}")));
        client.send(&reply, to).await?;
        if to.close {
            break;
        }
    }
    client.close().await;
    Ok(())
}

async fn handle(shared: &Shared, address: SocketAddr, request: &Request) -> io::Result<Reply> {
    let Some(tenant) = request.headers.get("X-Okapi-Tenant") else {
        return Ok(Reply::text(400, "No tenant"));
    };
    let path = path::raw(&request.target);
    let Some(route) = ROUTES
        .iter()
        .find(|(method, pattern, ..)| *method == request.method && fits(pattern, path))
    else {
        return Ok(Reply::text(404, "No suitable module found for path"));
    };
    let number = shared.number.fetch_add(1, Ordering::Relaxed) % 1_000_000;
    let call = filter_call(request, route, number, address);
    let answer = ask_auth(shared, &call).await?;
    if !(200..300).contains(&answer.status) {
        return Ok(Reply::text(answer.status, answer.text()));
    }
    let business = locked(&shared.business)
        .clone()
        .ok_or(ErrorKind::NotConnected)?;
    Ok(if request.method == "GET" {
        read(&business, tenant, &request.target)
    } else {
        write(&business, tenant, request)
    })
}

/// The filter call for a client's request: its headers, then Okapi's own.
fn filter_call(request: &Request, route: &Route, number: u32, address: SocketAddr) -> Request {
    let (_, _, required, desired) = route;
    let mut call = Request::new(&request.method, &request.target);
    let given = request.headers.get("X-Okapi-Request-Id");
    let (id, token) = (
        given.map(str::to_owned),
        request.headers.get("X-Okapi-Token"),
    );
    call.headers = request
        .headers
        .iter()
        .filter(|(name, _)| {
            let set_anew = name.eq_ignore_ascii_case("x-okapi-request-id");
            !set_anew
                && !DROPPED
                    .iter()
                    .any(|dropped| dropped.eq_ignore_ascii_case(name))
        })
        .collect::<Headers>();
    let segment = request.target.split(['/', '?']).nth(1).unwrap_or_default();
    let own = format!("{number:06}/{segment}");
    let id = id.map_or_else(|| own.clone(), |id| format!("{id};{own}"));
    let headers = &mut call.headers;
    headers.push("X-Okapi-Request-Id", id);
    headers.set("X-Okapi-Url", format!("http://{address}"));
    headers.set("X-Okapi-request-ip", "127.0.0.1");
    headers.set("X-Okapi-request-timestamp", "1796040950000");
    headers.set("X-Okapi-request-method", &request.method);
    if let Some(token) = token.filter(|token| !token.is_empty()) {
        headers.push("X-Okapi-Token", token);
    }
    headers.set("X-Okapi-Permissions-Required", required);
    if !desired.is_empty() {
        headers.set("X-Okapi-Permissions-Desired", desired);
    }
    headers.set("X-Okapi-Module-Permissions", "{}");
    headers.set("X-Okapi-Match-Path-Pattern", "/*");
    headers.push("host", "authtoken");
    call
}

/// Asks on a pooled connection, or on a fresh one if there is none (or the pooled one has gone).
async fn ask_auth(shared: &Shared, call: &Request) -> io::Result<Answer> {
    let auth = locked(&shared.auth).ok_or(ErrorKind::NotConnected)?;
    let pooled = locked(&shared.idle).pop();
    if let Some(mut connection) = pooled
        && let Ok(answer) = connection.ask(call).await
    {
        locked(&shared.idle).push(connection);
        return Ok(answer);
    }
    let mut connection = Connection::open(auth).await?;
    let answer = connection.ask(call).await?;
    if !answer.headers.has_word("connection", "close") {
        locked(&shared.idle).push(connection);
    }
    Ok(answer)
}

fn read(business: &Module, tenant: &str, target: &str) -> Reply {
    if path::raw(target) == "/circulation/loans" {
        return Reply::json(200, r#"{"loans":[],"totalRecords":0}"#);
    }
    let answer = business.ask_world(tenant, target);
    match answer.status {
        200 => Reply::json(200, answer.body),
        status => Reply::text(status, answer.body),
    }
}

/// Changes the world. A body names what the path does not: `active`, `permissionName`, `subPermissions`.
fn write(business: &Module, tenant: &str, request: &Request) -> Reply {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let segments: Vec<_> = path::raw(&request.target).split('/').skip(1).collect();
    let mut world = business.world();
    match (request.method.as_str(), segments.as_slice()) {
        ("PUT", ["perms", "permissions", _]) => {
            let parts: Vec<_> = body["subPermissions"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            match body["permissionName"].as_str() {
                Some(set) => world.change_set(tenant, set, &parts),
                None => return Reply::text(400, "permissionName is missing"),
            }
        }
        (_, ["users", id, ..] | ["perms", "users", id, ..]) if world.user(tenant, id).is_none() => {
            return Reply::text(404, "Not found");
        }
        ("PUT", ["users", id]) => world.set_active(tenant, id, body["active"] == true),
        ("DELETE", ["users", id]) => world.delete_user(tenant, id),
        ("POST", ["perms", "users", id, "permissions"]) => match body["permissionName"].as_str() {
            Some(permission) => world.grant(tenant, id, permission),
            None => return Reply::text(400, "permissionName is missing"),
        },
        ("DELETE", ["perms", "users", id, "permissions", permission]) => {
            world.revoke(tenant, id, permission);
        }
        _ => return Reply::text(404, "Not found"),
    }
    Reply::empty(204)
}

fn fits(pattern: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    let same = pattern.split('/').all(|wanted| {
        segments
            .next()
            .is_some_and(|segment| wanted == segment || wanted == "*" && !segment.is_empty())
    });
    same && segments.next().is_none()
}
