//! What `cast serve` writes of the casts that it takes.

use super::*;

/// A receiver whose lines are read: its address, and what it writes from then on.
fn serve(ground: &mut Ground) -> (String, BufReader<std::process::ChildStderr>) {
    let mut command = Command::new(PROGRAM);
    let (key, directory) = (ground.root.join("key"), ground.root.join("served"));
    Receiver::prepare(&mut command, &key, &directory, "127.0.0.1:0");
    let mut child = command.spawn().expect("the program");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("a line");
    let address = first.strip_prefix("listening at ").and_then(|line| line.split(',').next());
    let address = address.expect(&first).to_owned();
    ground.receivers.push(Receiver { child, address: address.clone(), directory });
    (address, lines)
}

#[test]
fn serve__each_cast_has_a_line_when_it_begins_and_one_when_it_ends() {
    let mut ground = Ground::new("served", 0);
    let (address, mut lines) = serve(&mut ground);
    fs::write(ground.from("model"), noise(MIB, 1)).expect("written");
    let cast = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["cast", "model", "--to", &address, "--key"]).arg(ground.root.join("key"));
        command.args(arguments).current_dir(ground.from(""));
        CastOutput::from_output(command.output().expect("the program"))
    };
    let mut expect = |words: &str| {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        let is_timed = line.get(4..5) == Some("-") && line.get(19..20) == Some("Z");
        assert!(is_timed && line.contains(words), "looking for `{words}` in: {line}");
    };
    cast(&[]).expect(0, "1 of 1 have everything");
    expect("Z 127.0.0.1: a cast begins");
    expect("Z 127.0.0.1: the cast ends: complete, 1.0 MiB, files 1, removed 0, failed 0, in ");
    cast(&["-n"]).expect(0, "1 of 1 have everything");
    expect("a cast begins");
    expect("the cast ends: nothing changed, dry run, in ");
    cast(&["--into", "../up"]).expect(1, "refused");
    expect("a cast begins");
    expect("the cast ends: broken off, 0 B, in ");
    expect("is not below the directory");
    fs::create_dir_all(ground.root.join("served/sub/model")).expect("made");
    cast(&["--into", "sub"]).expect(1, "incomplete");
    expect("a cast begins");
    expect("the cast ends: incomplete, 0 B, files 0, removed 0, failed 1, in ");
}
