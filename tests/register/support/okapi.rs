//! An Okapi, as far as discovery goes, with the real one's semantics (`DiscoveryManager`, `InternalModule`, `ProxyService`):
//!
//! - entries are only recorded; nobody checks the service id, the instance id is unique over all modules (10809), the URL is
//!   kept as it comes, and there is no PUT;
//! - each request of a tenant that has the auth module picks one of its entries at random and asks it; nobody there is a 500
//!   `proxyClient failure`, no entry a 404, and there is no second try;
//! - that goes for Okapi's own API as well, on a secured system;
//! - several pods share one discovery, each reaches its own loopback address, and which one answers is settled per connection.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

pub(crate) const MODULE: &str = "mod-authtoken-2.17.0";
pub(crate) const SIDECAR_URL: &str = "http://127.0.0.1:8071";
pub(crate) const DIRECT_URL: &str = "http://mod-authtoken";
pub(crate) const OURS: &str = "mod-authtoken-2.17.0-auth-sidecar";

/// What goes wrong at one change of the discovery.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// A 500, and nothing is changed.
    Error,
    /// It is changed, but the connection breaks before the answer.
    NoAnswer,
    /// It is changed and answered, and from then on nobody listens at this address in any pod.
    Down(String),
    /// It is changed; the answer waits until the test says so.
    Hold(Arc<Hold>),
    /// It and all that follow: a 500.
    ErrorForEver,
}

/// A request that waits.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    pub(crate) reached: Notify,
    pub(crate) release: Notify,
}

/// How mod-login lets users in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginRoutes {
    Both,
    OldOnly,
}

/// All that can be seen and set while it runs.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) modules: Vec<String>,
    pub(crate) tenants: BTreeMap<String, Vec<String>>,
    pub(crate) entries: Vec<Value>,
    /// Addresses at which nobody listens: (pod, url).
    pub(crate) down: HashSet<(usize, String)>,
    pub(crate) faults: BTreeMap<usize, Fault>,
    /// Changes that got as far as Okapi's own code.
    pub(crate) changes: Vec<String>,
    /// The smallest number of entries the auth module ever had.
    pub(crate) fewest: usize,
    /// Okapi's own Kubernetes discovery: adds these again whenever the discovery is listed.
    pub(crate) kubernetes: Vec<Value>,
    pub(crate) trace: bool,
    pub(crate) checks_service_ids: bool,
    pub(crate) tells_nodes: bool,
    pub(crate) login_routes: LoginRoutes,
    pub(crate) password: String,
    /// Tokens that logins give out, one after the other.
    pub(crate) next_tokens: Vec<String>,
    pub(crate) logins: usize,
    /// Okapi's token cache: (pod, tenant, method, path, token).
    cache: BTreeSet<(usize, String, String, String, String)>,
    /// Everything that was asked, without tokens.
    pub(crate) requests: Vec<String>,
    addresses: Vec<BTreeMap<String, SocketAddr>>,
}

/// A running one. It ends with the test's runtime.
#[derive(Debug, Clone)]
pub(crate) struct Okapi {
    pub(crate) addr: SocketAddr,
    world: Arc<Mutex<World>>,
}

struct Broken;

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the stand-in breaks the connection on purpose")
    }
}
impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
impl std::error::Error for Broken {}

type Answer = Response<Full<Bytes>>;

impl Okapi {
    /// As many pods as there are sidecars. Tenant `diku` has the auth module, `supertenant` has not, and the direct entry is registered.
    pub(crate) async fn start(auth: SocketAddr, sidecars: &[SocketAddr]) -> Self {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let addresses = sidecars.iter().map(|sidecar| {
            BTreeMap::from([
                (SIDECAR_URL.to_owned(), *sidecar),
                (DIRECT_URL.to_owned(), auth),
            ])
        });
        let world = World {
            modules: ids(&[
                "okapi-6.2.1",
                "mod-users-19.3.2",
                "mod-authtoken-2.16.0",
                MODULE,
            ]),
            tenants: BTreeMap::from([
                ("supertenant".to_owned(), ids(&["okapi-6.2.1"])),
                (
                    "diku".to_owned(),
                    ids(&["okapi-6.2.1", "mod-users-19.3.2", MODULE]),
                ),
            ]),
            entries: vec![entry(MODULE, MODULE, DIRECT_URL)],
            down: HashSet::new(),
            faults: BTreeMap::new(),
            changes: Vec::new(),
            fewest: 1,
            kubernetes: Vec::new(),
            trace: false,
            checks_service_ids: false,
            tells_nodes: true,
            login_routes: LoginRoutes::Both,
            password: "s3cret-pass".to_owned(),
            next_tokens: Vec::new(),
            logins: 0,
            cache: BTreeSet::new(),
            requests: Vec::new(),
            addresses: addresses.collect(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let world = Arc::new(Mutex::new(world));
        let okapi = Self { addr, world };
        tokio::spawn(okapi.clone().serve(listener, sidecars.len()));
        okapi
    }

    async fn serve(self, listener: TcpListener, pods: usize) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            let okapi = self.clone();
            let pod = random(pods);
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let okapi = okapi.clone();
                    async move { okapi.answer(pod, request).await }
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Has the supertenant checked by the auth module too, as on every system in earnest.
    pub(crate) fn secure(&self) {
        let mut world = self.world();
        let modules = world.tenants.get_mut("supertenant").unwrap();
        modules.push(MODULE.to_owned());
        modules.push("mod-login-7.11.0".to_owned());
    }

    /// In every pod, this address leads there.
    pub(crate) fn resolve(&self, url: &str, addr: SocketAddr) {
        for pod in &mut self.world().addresses {
            pod.insert(url.to_owned(), addr);
        }
    }

    /// Nobody listens at this address in that pod any more.
    pub(crate) fn take_down(&self, pod: usize, url: &str) {
        self.world().down.insert((pod, url.to_owned()));
    }

    /// Nobody listens at this address in any pod any more.
    pub(crate) fn take_down_everywhere(&self, url: &str) {
        let pods = self.world().addresses.len();
        for pod in 0..pods {
            self.take_down(pod, url);
        }
    }

    /// Somebody listens again everywhere.
    pub(crate) fn bring_up(&self) {
        self.world().down.clear();
    }

    pub(crate) fn add(&self, module: &str, instance: &str, url: &str) {
        self.world().entries.push(entry(module, instance, url));
    }

    /// (instance, url) of the module's entries, sorted.
    pub(crate) fn entries_of(&self, module: &str) -> Vec<(String, String)> {
        let mut found: Vec<_> = self
            .world()
            .entries
            .iter()
            .filter(|e| e["srvcId"] == module)
            .map(|e| (text_of(e, "instId"), text_of(e, "url")))
            .collect();
        found.sort();
        found
    }

    /// Whether in every pod some entry of the auth module is listened to.
    pub(crate) fn has_a_working_entry(&self) -> bool {
        let entries = self.entries_of(MODULE);
        let world = self.world();
        (0..world.addresses.len()).all(|pod| {
            entries
                .iter()
                .any(|(_, url)| world.address(pod, url).is_some())
        })
    }

    async fn answer(&self, pod: usize, request: Request<Incoming>) -> Result<Answer, Broken> {
        let method = request.method().to_string();
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let header = |name: &str| {
            let value = request.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let tenant = header("X-Okapi-Tenant").unwrap_or_else(|| "supertenant".to_owned());
        let token = header("X-Okapi-Token").filter(|token| !token.is_empty());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        self.world()
            .requests
            .push(format!("{method} {path} {tenant}"));

        let Some(required) = self.world().permission(&tenant, &method, &path) else {
            let known = self.world().tenants.contains_key(&tenant);
            return Ok(if known {
                text(
                    404,
                    &format!("No suitable module found for path {path} for tenant {tenant}"),
                )
            } else {
                text(400, &format!("No such Tenant {tenant}"))
            });
        };
        let mut trace = None;
        if let Some(refused) = self
            .authorise(pod, &tenant, &method, &path, required, token, &mut trace)
            .await
        {
            return Ok(refused);
        }
        let mut answer = self.handle(pod, &method, &path, &query, &body).await?;
        if let Some(trace) = trace.filter(|_| self.world().trace) {
            answer
                .headers_mut()
                .append("X-Okapi-Trace", trace.parse().unwrap());
        }
        Ok(answer)
    }

    /// The auth filter of the request's pipeline; an answer, when the request ends there.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one request, used once"
    )]
    async fn authorise(
        &self,
        pod: usize,
        tenant: &str,
        method: &str,
        path: &str,
        required: &str,
        token: Option<String>,
        trace: &mut Option<String>,
    ) -> Option<Answer> {
        let cached = token.clone().map(|token| {
            (
                pod,
                tenant.to_owned(),
                method.to_owned(),
                path.to_owned(),
                token,
            )
        });
        let (module, url, addr) = {
            let world = self.world();
            if cached.as_ref().is_some_and(|key| world.cache.contains(key)) {
                return None;
            }
            let enabled = &world.tenants[tenant];
            let module = enabled.iter().find(|id| id.starts_with("mod-authtoken-"))?;
            let urls: Vec<String> = world
                .entries
                .iter()
                .filter(|e| e["srvcId"] == module.as_str())
                .map(|e| text_of(e, "url"))
                .collect();
            if urls.is_empty() {
                return Some(text(
                    404,
                    &format!("No running module instance found for {module}"),
                ));
            }
            let url = urls[random(urls.len())].clone();
            let addr = world.address(pod, &url);
            (module.clone(), url, addr)
        };
        let failure = |cause: &str| {
            let message = format!("proxyClient failure: {module} {url}: {cause}: {method} {path}");
            Some(text(500, &message))
        };
        let Some(addr) = addr else {
            return failure("Connection refused");
        };
        let Ok((status, body)) = filter_call(addr, method, path, tenant, required, token).await
        else {
            return failure("Connection was closed");
        };
        *trace = Some(format!("{method} {module} {url}{path} : {status} 1234us"));
        if (200..300).contains(&status) {
            self.world().cache.extend(cached);
            return None;
        }
        Some(text(status, &body))
    }

    async fn handle(
        &self,
        pod: usize,
        method: &str,
        path: &str,
        query: &str,
        body: &[u8],
    ) -> Result<Answer, Broken> {
        let segments: Vec<String> = path.split('/').skip(1).map(decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match (method, segments.as_slice()) {
            ("GET", ["_", "proxy", "health"]) => Ok(text(200, "[ ]")),
            ("GET", ["users"]) => Ok(text(200, r#"{"users":[]}"#)),
            ("GET", ["_", "proxy", "modules"]) => Ok(self.world().list_modules(query)),
            ("GET", ["_", "proxy", "modules", id]) => {
                let known = self.world().modules.iter().any(|m| m == id);
                Ok(if known {
                    named(&[(*id).to_owned()], false)
                } else {
                    text(404, id)
                })
            }
            ("GET", ["_", "proxy", "tenants", tenant, "modules"]) => {
                let modules = self.world().tenants.get(*tenant).cloned();
                Ok(modules.map_or_else(|| text(404, tenant), |ids| named(&ids, true)))
            }
            ("POST", ["authn", route]) => Ok(self.world().log_in(route, body)),
            ("GET", ["_", "discovery", "nodes"]) => {
                let world = self.world();
                if !world.tells_nodes {
                    return Ok(text(
                        403,
                        "Access requires permission: okapi.discovery.nodes.get",
                    ));
                }
                let node = |n| json!({"nodeId": format!("node{n}"), "url": "http://okapi:9130"});
                let nodes: Vec<Value> = (0..world.addresses.len()).map(node).collect();
                Ok(json_answer(200, &Value::from(nodes)))
            }
            ("GET", ["_", "discovery", "modules"]) => {
                let mut world = self.world();
                world.let_kubernetes_add();
                Ok(json_answer(200, &Value::from(world.entries.clone())))
            }
            ("GET", ["_", "discovery", "modules", service]) => {
                let world = self.world();
                let found: Vec<Value> = world
                    .entries
                    .iter()
                    .filter(|e| e["srvcId"] == *service)
                    .cloned()
                    .collect();
                Ok(if found.is_empty() {
                    text(404, service)
                } else {
                    json_answer(200, &Value::from(found))
                })
            }
            ("GET", ["_", "discovery", "health", service, instance]) => {
                let found = self.world().find(service, instance);
                Ok(match found {
                    Some(entry) => self.health(pod, &entry).await,
                    None => text(404, &format!("{service}/{instance}")),
                })
            }
            ("POST", ["_", "discovery", "modules"]) => {
                let entry: Value = serde_json::from_slice(body).unwrap();
                let what = format!("POST {}", text_of(&entry, "instId"));
                self.change(what, |world| world.post(entry)).await
            }
            ("DELETE", ["_", "discovery", "modules", service, instance]) => {
                let what = format!("DELETE {instance}");
                self.change(what, |world| world.delete(service, instance))
                    .await
            }
            // PUT has a route and a permission in Okapi's descriptor, but no code.
            _ => Ok(text(404, &format!("Unhandled internal module path={path}"))),
        }
    }

    async fn change(
        &self,
        what: String,
        make: impl FnOnce(&mut World) -> Answer,
    ) -> Result<Answer, Broken> {
        let (answer, fault) = {
            let mut world = self.world();
            let number = world.changes.len();
            world.changes.push(what);
            let mut fault = world.faults.get(&number).cloned();
            let first_of_many = world
                .faults
                .iter()
                .find(|(_, fault)| matches!(fault, Fault::ErrorForEver));
            if first_of_many.is_some_and(|(from, _)| number >= *from) {
                fault = Some(Fault::Error);
            }
            if matches!(fault, Some(Fault::Error | Fault::ErrorForEver)) {
                return Ok(text(500, "fault"));
            }
            let answer = make(&mut world);
            let entries = world
                .entries
                .iter()
                .filter(|e| e["srvcId"] == MODULE)
                .count();
            world.fewest = world.fewest.min(entries);
            (answer, fault)
        };
        match fault {
            Some(Fault::NoAnswer) => return Err(Broken),
            Some(Fault::Down(url)) => self.take_down_everywhere(&url),
            Some(Fault::Hold(hold)) => {
                hold.reached.notify_one();
                hold.release.notified().await;
            }
            Some(Fault::Error | Fault::ErrorForEver) | None => {}
        }
        Ok(answer)
    }

    async fn health(&self, pod: usize, entry: &Value) -> Answer {
        let url = text_of(entry, "url");
        let addr = self.world().address(pod, &url);
        let reached = match addr {
            Some(addr) => ask(addr, Request::get("/").body(Empty::new()).unwrap())
                .await
                .is_ok(),
            None => false,
        };
        let message = if reached {
            "OK"
        } else {
            "Fail: Connection refused"
        };
        json_answer(
            200,
            &json!({
                "instId": entry["instId"], "srvcId": entry["srvcId"],
                "healthMessage": message, "healthStatus": reached,
            }),
        )
    }
}

impl World {
    fn address(&self, pod: usize, url: &str) -> Option<SocketAddr> {
        if self.down.contains(&(pod, url.to_owned())) {
            return None;
        }
        self.addresses[pod].get(url).copied()
    }

    fn find(&self, service: &str, instance: &str) -> Option<Value> {
        let found = self
            .entries
            .iter()
            .find(|e| e["srvcId"] == service && e["instId"] == instance);
        found.cloned()
    }

    /// The permission that the route needs, `""` for none; `None` when this tenant has no such route.
    fn permission(&self, tenant: &str, method: &str, path: &str) -> Option<&'static str> {
        let enabled = self.tenants.get(tenant)?;
        let has = |name: &str| enabled.iter().any(|id| id.starts_with(name));
        if path.starts_with("/_/") {
            return has("okapi-").then_some(match (method, path) {
                ("GET", "/_/proxy/health") => "",
                ("GET", _) => "okapi.get",
                ("POST", _) => "okapi.discovery.post",
                _ => "okapi.discovery.delete",
            });
        }
        if path == "/authn/login" && has("mod-login-") {
            return Some("");
        }
        if path == "/authn/login-with-expiry" && has("mod-login-") {
            return (self.login_routes == LoginRoutes::Both).then_some("");
        }
        (path == "/users" && has("mod-users-")).then_some("")
    }

    fn list_modules(&self, query: &str) -> Answer {
        let filter = query.strip_prefix("filter=").unwrap_or_default();
        let ids: Vec<String> = self
            .modules
            .iter()
            .filter(|id| id.starts_with(filter))
            .cloned()
            .collect();
        named(&ids, true)
    }

    fn post(&mut self, entry: Value) -> Answer {
        let (service, instance) = (text_of(&entry, "srvcId"), text_of(&entry, "instId"));
        if self.checks_service_ids && !self.modules.contains(&service) {
            return text(404, &format!("Module {service} not found"));
        }
        if self
            .entries
            .iter()
            .any(|e| e["instId"] == instance.as_str())
        {
            return text(400, &format!("Duplicate instId {instance}"));
        }
        let answer = json_answer(201, &entry);
        self.entries.push(entry);
        answer
    }

    fn delete(&mut self, service: &str, instance: &str) -> Answer {
        if self.find(service, instance).is_none() {
            return text(404, &format!("{service}/{instance}"));
        }
        self.entries.retain(|e| e["instId"] != instance);
        text(204, "")
    }

    fn let_kubernetes_add(&mut self) {
        for entry in self.kubernetes.clone() {
            if !self.entries.contains(&entry) {
                self.entries.push(entry);
            }
        }
    }

    fn log_in(&mut self, route: &str, body: &[u8]) -> Answer {
        let body: Value = serde_json::from_slice(body).unwrap();
        if body["password"] != self.password.as_str() {
            return text(422, r#"{"errors":[{"message":"Password does not match"}]}"#);
        }
        self.logins += 1;
        let token = self.next_tokens.remove(0);
        let mut answer = text(201, "{}");
        let headers = answer.headers_mut();
        if route == "login" {
            headers.insert("x-okapi-token", token.parse().unwrap());
        } else {
            let cookie = |name: &str, value: &str| {
                format!("{name}={value}; Max-Age=600; Path=/; Secure; HttpOnly; SameSite=None")
            };
            headers.append(
                "set-cookie",
                cookie("folioRefreshToken", "r").parse().unwrap(),
            );
            headers.append(
                "set-cookie",
                cookie("folioAccessToken", &token).parse().unwrap(),
            );
        }
        answer
    }
}

pub(crate) fn entry(module: &str, instance: &str, url: &str) -> Value {
    json!({"srvcId": module, "instId": instance, "url": url})
}

fn text_of(entry: &Value, field: &str) -> String {
    entry[field].as_str().unwrap_or_default().to_owned()
}

/// Undoes percent-encoding.
fn decode(segment: &str) -> String {
    let mut parts = segment.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).unwrap()
}

/// Random enough to pick an instance.
fn random(below: usize) -> usize {
    static SEED: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    let mut x = SEED.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((x ^ (x >> 31)) % below as u64).unwrap()
}

async fn filter_call(
    addr: SocketAddr,
    method: &str,
    path: &str,
    tenant: &str,
    required: &str,
    token: Option<String>,
) -> Result<(u16, String), ()> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("X-Okapi-Tenant", tenant)
        .header("X-Okapi-Url", "http://okapi:9130")
        .header("X-Okapi-Module-Permissions", "{}");
    if !required.is_empty() {
        request = request.header("X-Okapi-Permissions-Required", required);
    }
    if let Some(token) = token {
        request = request.header("X-Okapi-Token", token);
    }
    ask(addr, request.body(Empty::new()).unwrap()).await
}

async fn ask(addr: SocketAddr, mut request: Request<Empty<Bytes>>) -> Result<(u16, String), ()> {
    let host = addr.to_string().parse().unwrap();
    request.headers_mut().insert("Host", host);
    let stream = TcpStream::connect(addr).await.map_err(drop)?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(drop)?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(drop)?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.map_err(drop)?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

fn named(ids: &[String], many: bool) -> Answer {
    let all: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
    if many {
        json_answer(200, &Value::from(all))
    } else {
        json_answer(200, &all[0])
    }
}

fn json_answer(status: u16, body: &Value) -> Answer {
    let mut answer = text(status, &body.to_string());
    let json = "application/json".parse().unwrap();
    answer.headers_mut().insert("Content-Type", json);
    answer
}

fn text(status: u16, body: &str) -> Answer {
    Response::builder()
        .status(status)
        .header("Content-Type", "text/plain")
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap()
}
