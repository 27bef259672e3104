//! What those can do to `clearway cast serve` who reach its port, or have recorded what a sender
//! said to it.

use std::io::Read;
use std::net::TcpListener;

use super::*;

/// Bytes of a sender's first words: the protocol, the session, a card.
const HELLO: usize = 16 + 8 + 49;
/// Bytes of the answer: the protocol, a card.
const ANSWER: usize = 16 + 49;

/// What a sender with the right key said first to a receiver.
fn recorded_hello(ground: &Ground) -> Vec<u8> {
    let between = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = between.local_addr().expect("bound").to_string();
    let mut cast = ground.command(&["model", "--to", &address]).spawn().expect("the program");
    let mut hello = vec![0; HELLO];
    between.accept().expect("the sender").0.read_exact(&mut hello).expect("its first words");
    cast.kill().expect("killed");
    cast.wait().expect("ended");
    hello
}

/// A connection to receiver 0 that is never silent for ever on this side.
fn connect(ground: &Ground) -> TcpStream {
    let stream = TcpStream::connect(&ground.receivers[0].address).expect("let in");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    stream
}

#[test]
fn replay__a_recorded_hello_holds_no_place_and_no_memory() {
    let ground = Ground::new("replay", 1);
    fs::write(ground.from("model"), noise(MIB, 41)).expect("written");
    let hello = recorded_hello(&ground);
    let mut replays = Vec::new();
    for _ in 0..64 {
        let mut stream = connect(&ground);
        // One that is shown out meanwhile has nothing to say.
        let _ = stream.write_all(&hello);
        replays.push(stream);
    }
    let mut stream = connect(&ground);
    stream.write_all(&hello).expect("sent");
    stream.read_exact(&mut [0; ANSWER]).expect("a card");
    let garbage = [&(59_u32 << 20).to_le_bytes()[..], &noise(MIB, 42)].concat();
    let _ = stream.write_all(&garbage);
    let end = stream.read(&mut [0]);
    let is_closed = match &end {
        Ok(count) => *count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    };
    assert!(is_closed, "it goes on listening to garbage: {end:?}");
    ground.cast(&["model"]).expect(0, "1 of 1 have everything");
    drop(replays);
}

#[test]
fn silent__more_strangers_than_there_are_places_keep_no_sender_out() {
    let ground = Ground::new("silent", 1);
    fs::write(ground.from("model"), noise(MIB, 43)).expect("written");
    let strangers: Vec<TcpStream> = (0..80).map(|_| connect(&ground)).collect();
    ground.cast(&["model"]).expect(0, "1 of 1 have everything");
    assert_same(&ground.from("model"), &ground.at(0, "model"));
    drop(strangers);
}

#[test]
fn crowd__a_sender_that_is_shown_out_comes_again() {
    let ground = Ground::new("crowd", 1);
    fs::write(ground.from("model"), b"bytes").expect("written");
    let crowded = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = crowded.local_addr().expect("bound").to_string();
    let receiver = ground.receivers[0].address.clone();
    // It ends the first two connections, and passes on what the third says.
    std::thread::spawn(move || {
        drop(crowded.accept());
        drop(crowded.accept());
        let (ours, _) = crowded.accept().expect("the sender");
        let theirs = TcpStream::connect(receiver).expect("let in");
        let both = [(&ours, &theirs), (&theirs, &ours)].map(|(from, to)| {
            let (mut from, mut to) =
                (from.try_clone().expect("the same"), to.try_clone().expect("the same"));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            })
        });
        both.into_iter().for_each(|thread| drop(thread.join()));
    });
    let mut command = Command::new(PROGRAM);
    command.args(["cast", "model", "--to", &address, "--key"]).arg(ground.root.join("key"));
    let reported = CastOutput::from_output(
        command.current_dir(ground.root.join("from")).output().expect("the program"),
    );
    reported.expect(0, "1 of 1 have everything");
}
