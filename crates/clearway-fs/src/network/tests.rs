//! A server and its clients over sealed UDP on this machine: what is written is there, also when the
//! server or the connection ended in between.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos, Rank};
use clearway_proto::calls::PacerConfig;
use clearway_proto::reliable::{ReliableWire, StreamConfig};
use clearway_proto::staging::InodeId;
use clearway_runtime::udp::{Placement, UdpConfig, UdpPort, UdpWire};
use clearway_runtime::waiting::{Waitable, Waiting};
use rustix::io::Errno;

use super::client::{CacheState, FileAge, RemoteFiles};
use super::connection::{ConnectError, ServerConnection, ServerConnector, keep_connected};
use super::mount::{RemoteMountOptions, RemoteMounted, RemoteServer};
use super::request::{FileRequest, FileResponse, RequestNode, RequestPlace, RequestedAttributes};
use super::server::StagingServer;
use super::{ClientName, User};
use crate::FsError;
use crate::handles::OpenUsage;
use crate::log_directory::LogSizes;
use crate::mount::{LogOptions, Reporter};
use crate::names::{Attributes, Maker};
use crate::store::StoreSharing;
use crate::testing::TestDirectory;

const SIZES: LogSizes = LogSizes { total: Bytes(64 << 20), inodes: 10_000 };

type TestWire = Box<dyn Waitable + Send>;

/// Opens the two ends of a wire on this machine.
fn wire_pair() -> [TestWire; 2] {
    let bind = || UdpPort::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let ports = [bind(), bind()];
    let peers: Vec<SocketAddrV4> = ports.iter().map(UdpPort::address).collect();
    let streams = StreamConfig { timeout: Nanos::from_secs(2), ..StreamConfig::new(2) };
    let mut rank = 0;
    ports.map(|port| {
        let mut config = UdpConfig::new(Rank(rank), 7, peers.clone());
        rank += 1;
        (config.placement, config.waiting) = (Placement::OneMachine, Waiting::Sleep);
        let wire = UdpWire::open([port], config).expect("a wire");
        let wire = ReliableWire::new(wire, 2, &streams, 0).expect("all is there");
        Box::new(wire) as TestWire
    })
}

/// A server that can be started again, and what connects to it.
struct TestService {
    directory: TestDirectory,
    pace: Option<PacerConfig>,
    server: Mutex<Option<StagingServer>>,
    sessions: Mutex<Vec<JoinHandle<()>>>,
    links: Mutex<Vec<UnixStream>>,
}

impl TestService {
    fn new() -> Arc<Self> {
        Self::with_pace(None)
    }

    fn with_pace(pace: Option<PacerConfig>) -> Arc<Self> {
        let directory = TestDirectory::new();
        fs::create_dir(directory.path().join("store")).expect("a store");
        let service = Arc::new(Self {
            directory,
            pace,
            server: Mutex::default(),
            sessions: Mutex::default(),
            links: Mutex::default(),
        });
        service.start();
        service
    }

    fn options(&self) -> LogOptions {
        let path = |name: &str| -> PathBuf { self.directory.path().join(name) };
        LogOptions {
            log: path("log"),
            store: path("store"),
            sharing: StoreSharing::Alone,
            sizes: SIZES,
            memory: 32 << 20,
            class: self.pace.map(|_| Class::Bulk),
            rules: Vec::new(),
            deadline: None,
            class_limit: None,
            store_timeout: Duration::from_secs(30),
            drain_rate: None,
            drain_allowance: None,
            shares: None,
        }
    }

    fn start(&self) {
        let reporter: Reporter = Arc::new(|_| ());
        // A program that another test starts has the lock of this log until it begins.
        let server = loop {
            match StagingServer::open(&self.options(), self.pace, &reporter) {
                Err(FsError::InUse { .. }) => std::thread::yield_now(),
                opened => break opened.expect("a server"),
            }
        };
        *self.server.lock().expect("no panic") = Some(server);
    }

    /// Cuts all connections, and ends the server.
    fn stop(&self) {
        // Nobody connects from now on.
        let server = self.server.lock().expect("no panic").take();
        self.cut();
        if let Some(server) = server {
            server.close().expect("all durable");
        }
        for session in self.sessions.lock().expect("no panic").drain(..) {
            session.join().expect("no panic");
        }
    }

    fn cut(&self) {
        self.links.lock().expect("no panic").clear();
    }

    /// Serves a client, and returns its end.
    fn connect(&self, client: ClientName, user: &User) -> Option<ServerConnection> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let server = server.as_ref()?;
        let (acceptor, log) = (server.acceptor(), server.log());
        let [there, here] = wire_pair();
        // Each end has the peer of the other's link; the test closes both by dropping theirs.
        let (link, other) = UnixStream::pair().expect("a pair");
        let (server_link, server_other) = UnixStream::pair().expect("a pair");
        self.links.lock().expect("no panic").extend([other, server_other]);
        let user = user.clone();
        let session = std::thread::spawn(move || {
            let remains = acceptor.serve(client, user, there, server_link.into());
            remains.expect("a wire with all").forget();
        });
        self.sessions.lock().expect("no panic").push(session);
        Some(ServerConnection { wire: here, link: OwnedFd::from(link), log })
    }
}

struct TestConnector {
    service: Arc<TestService>,
    client: ClientName,
    user: User,
}

impl ServerConnector for TestConnector {
    fn connect(&mut self) -> Result<ServerConnection, ConnectError> {
        let connected = self.service.connect(self.client, &self.user);
        connected.ok_or_else(|| ConnectError::Later("there is no server".to_owned()))
    }
}

/// A client of a service.
struct TestClient {
    files: Arc<RemoteFiles>,
    thread: Option<JoinHandle<()>>,
}

impl TestClient {
    fn new(service: &Arc<TestService>, drawn: u32, user: User) -> Self {
        Self::with_timeout(service, drawn, user, None)
    }

    fn with_timeout(
        service: &Arc<TestService>,
        drawn: u32,
        user: User,
        timeout: Option<Duration>,
    ) -> Self {
        let client = ClientName::new(user.uid(), drawn);
        let mut connector = TestConnector { service: Arc::clone(service), client, user };
        let files = RemoteFiles::new(32 << 20, Arc::new(|_| ())).expect("a client");
        let Ok(first) = connector.connect() else { panic!("no server") };
        let kept = Arc::clone(&files);
        let connector = Box::new(connector);
        let thread = std::thread::spawn(move || keep_connected(&kept, connector, first, timeout));
        Self { files, thread: Some(thread) }
    }

    fn ask(&self, request: &FileRequest) -> Result<(FileResponse, Vec<u8>), Errno> {
        let (sender, receiver) = mpsc::channel();
        let answer = Box::new(move |found| sender.send(found).expect("the test waits"));
        self.files.request(Class::BestEffort, request, 1 << 20, answer);
        let (response, data) = receiver.recv().expect("an answer")?;
        response.outcome().map(|response| (response, data))
    }

    fn made(&self, request: &FileRequest) -> Attributes {
        match self.ask(request) {
            Ok((FileResponse::Attributes(made) | FileResponse::Created(made, _), _)) => made.into(),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn create(&self, parent: InodeId, name: &str) -> InodeId {
        let place = RequestPlace::new(parent, name.as_bytes());
        let maker = Maker { uid: 0, gid: 0, mode: 0o644 };
        let request = FileRequest::Create { place, maker, usage: OpenUsage::Write };
        match self.ask(&request) {
            Ok((FileResponse::Created(made, opening), _)) => {
                let made = Attributes::from(made);
                self.files.opened(made.inode, OpenUsage::Write, opening, FileAge::New);
                made.inode
            }
            other => panic!("{other:?}"),
        }
    }

    /// Opens a file and closes it; whether the kernel would keep its pages.
    fn open_and_close(&self, inode: InodeId, usage: OpenUsage) -> CacheState {
        match self.ask(&FileRequest::Open { inode: inode.0, usage }) {
            Ok((FileResponse::Opened(opening), _)) => {
                let state = self.files.opened(inode, usage, opening, FileAge::Existing);
                self.files.close(inode, usage);
                state
            }
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, inode: InodeId, offset: u64, bytes: &[u8]) {
        let (sender, receiver) = mpsc::channel();
        let answer = Box::new(move |done| sender.send(done).expect("the test waits"));
        self.files.write(inode, offset, bytes, None, answer);
        receiver.recv().expect("an answer").expect("written");
    }

    fn sync(&self, inode: InodeId) -> Result<(), Errno> {
        let (sender, receiver) = mpsc::channel();
        let answer = Box::new(move |done| sender.send(done).expect("the test waits"));
        self.files.sync(inode, answer);
        receiver.recv().expect("an answer")
    }

    fn read(&self, inode: InodeId, offset: u64, length: u32) -> Result<Vec<u8>, Errno> {
        let (sender, receiver) = mpsc::channel();
        let answer = Box::new(move |bytes: Result<&[u8], Errno>| {
            sender.send(bytes.map(<[u8]>::to_vec)).expect("the test waits");
        });
        self.files.read(inode, offset, length, answer);
        receiver.recv().expect("an answer")
    }
}

impl Drop for TestClient {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Its calls are not answered any more.
            self.files.fail();
        }
        self.files.finish();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn pattern(length: usize, salt: u8) -> Vec<u8> {
    (0..length).map(|at| (at / 7) as u8 ^ salt).collect()
}

#[test]
fn pace__mounts_of_a_server_that_sets_it_write_at_no_more_than_its_rate() {
    let link = BitsPerSec::mega(400);
    let service = TestService::with_pace(Some(PacerConfig { link, floor: link }));
    let clients = [1, 2].map(|drawn| TestClient::new(&service, drawn, User::Host));
    let bytes = pattern(1 << 20, 3);
    let begun = clearway_runtime::clock::now();
    let files = clients.each_ref().map(|client| {
        let file = client.create(InodeId::ROOT, &format!("of-{:p}", client));
        (0..4).for_each(|number| client.write(file, number << 20, &bytes));
        file
    });
    for (client, file) in clients.iter().zip(files) {
        client.sync(file).expect("in the log");
    }
    // The slower of both ends the wait, so that nothing here depends on how busy the machine is.
    let took = clearway_runtime::clock::now().since(begun);
    let least = Nanos(((8 << 20) - (1 << 18)) * 8 * 1_000 / 400);
    assert!(took >= least, "{took} for what takes {least}");
    for (client, file) in clients.iter().zip(files) {
        assert_eq!(client.read(file, 3 << 20, 1 << 20), Ok(bytes.clone()));
    }
    let server = service.server.lock().expect("no panic");
    let pace = server.as_ref().and_then(|server| server.status_reader().status().pace);
    assert_eq!(pace.map(|pace| (pace.link, pace.rate)), Some((link.0, link.0)));
    drop(server);
    drop(clients);
    service.stop();
}

#[test]
fn client__what_one_writes_and_closes_another_reads() {
    let service = TestService::new();
    let (one, other) =
        (TestClient::new(&service, 1, User::Host), TestClient::new(&service, 2, User::Host));
    let inode = one.create(InodeId::ROOT, "file");
    let bytes = pattern(3 << 20, 5);
    for (number, piece) in bytes.chunks(1 << 20).enumerate() {
        one.write(inode, (number as u64) << 20, piece);
    }
    one.write(inode, 100, b"over it");
    assert_eq!(one.read(inode, 98, 10).expect("own bytes").get(2..9), Some(&b"over it"[..]));
    assert_eq!(one.sync(inode), Ok(()));
    let found = other.made(&FileRequest::Lookup(RequestPlace::new(InodeId::ROOT, b"file")));
    assert_eq!((found.inode, found.size), (inode, 3 << 20));
    assert_eq!(other.read(inode, 100, 7).expect("bytes"), b"over it");
    assert!(other.read(inode, 2 << 20, 1 << 20).expect("bytes") == bytes[2 << 20..]);
    assert_eq!(other.read(inode, 3 << 20, 10).expect("the end"), b"");
    let missing = FileRequest::Lookup(RequestPlace::new(InodeId::ROOT, b"other"));
    assert_eq!(other.ask(&missing).err(), Some(Errno::NOENT));
    drop((one, other));
    service.stop();
}

#[test]
fn opened__pages_of_a_closed_file_are_kept_until_its_bytes_change() {
    let service = TestService::new();
    let (one, other) =
        (TestClient::new(&service, 1, User::Host), TestClient::new(&service, 2, User::Host));
    let inode = one.create(InodeId::ROOT, "file");
    one.write(inode, 0, b"first");
    assert_eq!(one.sync(inode), Ok(()));
    let read = || other.open_and_close(inode, OpenUsage::Read);
    assert_eq!(read(), CacheState::Stale);
    assert_eq!(read(), CacheState::Valid);
    one.write(inode, 0, b"again");
    assert_eq!(one.sync(inode), Ok(()));
    assert_eq!(read(), CacheState::Stale);
    assert_eq!(read(), CacheState::Valid);
    // What a program writes meanwhile, nobody knows here.
    other.open_and_close(inode, OpenUsage::Write);
    assert_eq!(read(), CacheState::Stale);
    // Another life of the server may count anew.
    assert_eq!(read(), CacheState::Valid);
    service.stop();
    service.start();
    assert_eq!(other.read(inode, 0, 5).expect("read"), b"again");
    assert_eq!(read(), CacheState::Stale);
}

#[test]
fn sync__it_waits_for_the_writes_before_it_and_not_for_those_behind() {
    let service = TestService::new();
    let client = TestClient::new(&service, 12, User::Host);
    let inode = client.create(InodeId::ROOT, "file");
    client.write(inode, 0, b"before");
    let (sender, receiver) = mpsc::channel();
    // While the server is away nothing is answered, and writes come behind the sync.
    service.stop();
    client.write(inode, 100, b"also before");
    let synced = Box::new(move |done| sender.send(done).expect("the test waits"));
    client.files.sync(inode, synced);
    assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Empty));
    client.write(inode, 1000, b"behind");
    service.start();
    assert_eq!(receiver.recv(), Ok(Ok(())));
    let found = client.made(&FileRequest::Attributes { inode: inode.0 });
    assert!(found.size >= 111, "{found:?}");
    drop(client);
    service.stop();
}

#[test]
fn client__a_server_that_starts_again_loses_nothing_and_doubles_nothing() {
    let service = TestService::new();
    let client = TestClient::new(&service, 3, User::Host);
    let mut files = Vec::new();
    for round in 0..4_u8 {
        let name = format!("file-{round}");
        let inode = client.create(InodeId::ROOT, &name);
        let bytes = pattern(700_000, round);
        client.write(inode, 0, &bytes);
        if round % 2 == 0 {
            // Writes and names are on their way when the server ends.
            service.stop();
            let link = RequestPlace::new(InodeId::ROOT, format!("link-{round}").as_bytes());
            let (sender, receiver) = mpsc::channel();
            let answer = Box::new(move |found| sender.send(found).expect("the test waits"));
            let request = FileRequest::Link { inode: inode.0, place: link };
            client.files.request(Class::BestEffort, &request, 0, answer);
            service.start();
            let found: Result<(FileResponse, Vec<u8>), Errno> = receiver.recv().expect("an answer");
            let linked = match found.expect("answered").0 {
                FileResponse::Attributes(found) => Attributes::from(found),
                other => panic!("{other:?}"),
            };
            assert_eq!(linked.links, 2, "once");
        } else {
            service.cut();
        }
        files.push((inode, bytes));
    }
    for (inode, bytes) in files {
        assert_eq!(client.sync(inode), Ok(()));
        assert!(client.read(inode, 0, 1 << 20).expect("bytes") == bytes);
    }
    drop(client);
    service.stop();
}

#[test]
fn client__a_server_that_stays_away_for_too_long_fails_all_requests() {
    let service = TestService::new();
    let timeout = Some(Duration::ZERO);
    let client = TestClient::with_timeout(&service, 5, User::Host, timeout);
    let inode = client.create(InodeId::ROOT, "kept");
    client.write(inode, 0, b"durable");
    assert_eq!(client.sync(inode), Ok(()));
    service.stop();
    let lookup = FileRequest::Lookup(RequestPlace::new(InodeId::ROOT, b"kept"));
    assert_eq!(client.ask(&lookup).err(), Some(Errno::IO));
    assert_eq!(client.read(inode, 0, 7), Err(Errno::IO));
    // The one that unmounts asks for the root, and must get an answer.
    let (sender, receiver) = mpsc::channel();
    let root = FileRequest::Attributes { inode: InodeId::ROOT.0 };
    let answer = Box::new(move |found: Result<_, Errno>| {
        sender.send(found.err()).expect("the test waits");
    });
    client.files.probe(Class::BestEffort, &root, answer);
    assert_eq!(receiver.recv().expect("an answer"), Some(Errno::NOTCONN));
    // It stays so: programs would see files of two times else.
    service.start();
    assert_eq!(client.ask(&lookup).err(), Some(Errno::IO));
    let other = TestClient::new(&service, 6, User::Host);
    let found = other.made(&lookup);
    assert_eq!(other.read(found.inode, 0, 7).expect("bytes"), b"durable");
    drop((client, other));
    service.stop();
}

/// Connects once, to a server that ends before it answers.
struct ConnectorOnce(Option<ServerConnection>);

impl ServerConnector for ConnectorOnce {
    fn connect(&mut self) -> Result<ServerConnection, ConnectError> {
        self.0.take().ok_or_else(|| ConnectError::Later("there is no server".to_owned()))
    }
}

#[test]
fn mount__it_ends_with_a_server_that_is_lost_before_its_first_answer() {
    let directory = TestDirectory::new();
    let [wire, _server] = wire_pair();
    let (link, other) = UnixStream::pair().expect("a pair");
    drop(other);
    let connection = ServerConnection { wire, link: OwnedFd::from(link), log: 1 };
    let options = RemoteMountOptions {
        tree: String::new(),
        directory: directory.path().to_owned(),
        memory: 32 << 20,
        timeout: None,
    };
    let connector = Box::new(ConnectorOnce(Some(connection)));
    let server = RemoteServer { name: "server1".to_owned(), connector };
    let reporter: Reporter = Arc::new(|_| ());
    let mounted = RemoteMounted::open(&options, vec![server], &reporter);
    let why = mounted.err().expect("no mount").to_string();
    assert!(why.contains("the server server1 closed the connection"), "{why}");
}

#[test]
fn client__a_mount_that_ends_does_not_wait_for_requests_of_stage() {
    let service = TestService::new();
    let client = TestClient::new(&service, 7, User::Host);
    service.stop();
    let ask = || {
        let (sender, receiver) = mpsc::channel();
        let answer = Box::new(move |found: Result<_, Errno>| {
            sender.send(found.map(|_| ())).expect("the test waits");
        });
        client.files.control("{}".to_owned(), answer);
        receiver
    };
    let before = ask();
    client.files.finish();
    assert_eq!(before.recv(), Ok(Err(Errno::SHUTDOWN)));
    assert_eq!(ask().recv(), Ok(Err(Errno::SHUTDOWN)));
    // Ends its thread, although there is no server.
    drop(client);
}

#[test]
fn user__a_person_does_what_its_rights_allow() {
    let service = TestService::new();
    let root = TestClient::new(&service, 4, User::Host);
    let person =
        |uid, drawn| TestClient::new(&service, drawn, User::Person { uid, gids: vec![uid] });
    // This process owns the root directory, so its user may remove what is in it.
    let own = rustix::process::geteuid().as_raw();
    let (of_alice, of_mallory) = (own + 1, own + 2);
    let (alice, mallory) = (person(of_alice, 5), person(of_mallory, 6));
    // A directory for everybody.
    let set = RequestedAttributes { mode: Some(0o1777), ..RequestedAttributes::default() };
    root.made(&FileRequest::Set { inode: InodeId::ROOT.0, set });
    let maker = Maker { uid: of_alice, gid: of_alice, mode: 0o600 };
    let place = RequestPlace::new(InodeId::ROOT, b"secret");
    let request = FileRequest::Create { place: place.clone(), maker, usage: OpenUsage::Write };
    let secret = alice.made(&request).inode;
    alice.write(secret, 0, b"private");
    assert_eq!(alice.sync(secret), Ok(()));

    let inode = secret.0;
    let refused = |request: FileRequest| mallory.ask(&request).err();
    let read = FileRequest::Read { inode, offset: 0, length: 100 };
    assert_eq!(refused(read), Some(Errno::ACCESS));
    let digest = clearway_proto::base::xxh3(b"");
    let write = FileRequest::Write { inode, offset: 0, digest, drops_set_id: None };
    assert_eq!(refused(write), Some(Errno::ACCESS));
    assert_eq!(refused(FileRequest::Open { inode, usage: OpenUsage::Read }), Some(Errno::ACCESS));
    let reopen = FileRequest::Reopen(vec![(inode, OpenUsage::Write)]);
    assert_eq!(refused(reopen), None, "nothing is opened");
    let read = FileRequest::Read { inode, offset: 0, length: 100 };
    assert_eq!(refused(read), Some(Errno::ACCESS));
    let set = RequestedAttributes { mode: Some(0o666), ..RequestedAttributes::default() };
    assert_eq!(refused(FileRequest::Set { inode, set }), Some(Errno::PERM));
    let set = RequestedAttributes { uid: Some(of_mallory), ..RequestedAttributes::default() };
    assert_eq!(refused(FileRequest::Set { inode, set }), Some(Errno::PERM));
    assert_eq!(refused(FileRequest::Unlink(place.clone())), Some(Errno::PERM), "sticky");
    let to = RequestPlace::new(InodeId::ROOT, b"mine");
    let rename = FileRequest::Rename { from: place, to, keeps_other: false };
    assert_eq!(refused(rename), Some(Errno::PERM));
    let forged = RequestPlace::new(InodeId::ROOT, b"forged");
    let make = FileRequest::Make { place: forged, node: RequestNode::File, maker };
    assert_eq!(refused(make), Some(Errno::PERM), "in the name of another");
    assert_eq!(alice.read(secret, 0, 100).expect("own"), b"private");
    drop((alice, mallory, root));
    service.stop();
}

#[test]
fn is_free__a_name_that_a_client_has_or_had_is_not() {
    let service = TestService::new();
    let (name, other) = (ClientName::new(0, 9), ClientName::new(0, 11));
    let is_free = |name| {
        let server = service.server.lock().expect("no panic");
        server.as_ref().expect("a server").acceptor().is_free(name)
    };
    assert!(is_free(name));
    let client = TestClient::new(&service, 9, User::Host);
    client.create(InodeId::ROOT, "file");
    assert!(!is_free(name) && is_free(other));
    drop(client);
    service.stop();
    service.start();
    assert!(!is_free(name), "its calls are in the log");
    service.stop();
}

#[test]
fn client_name__a_user_cannot_take_the_name_of_anothers_client() {
    let name = ClientName::new(1000, 77);
    assert_eq!(ClientName::parse(name.number(), 1000), Some(name));
    assert_eq!(ClientName::parse(name.number(), 1001), None);
    for wrong in [0, 1000 << 32, name.number() | 1] {
        assert_eq!(ClientName::parse(wrong, 1000), None, "{wrong:x}");
    }
}
