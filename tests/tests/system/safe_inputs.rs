//! No ordinary write of a task reaches what other tasks read, what is kept, or the user's files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use starling_tests::{Sandbox, binary, files_below, skip};

/// Rights that the cluster gives up: without the first, a node cannot mount; without the others,
/// root obeys the modes of files as other users do.
const GIVEN_UP: [&str; 3] = ["", "-sys_admin", "-sys_admin,-dac_override,-dac_read_search"];

const DEEDS: [&str; 10] = [
    "echo x >> data/a",
    ": > data/sub/b",
    "echo x 1<> data/a",
    "echo new > data/new",
    "rm -f data/a",
    "mv data/a data/z",
    "mkdir data/dir",
    "echo x >> data/link",
    "echo x >> mine",
    ": > big",
];

/// `starling` without these rights; `None`: they cannot be given up here.
fn restricted(given_up: &str) -> Option<Command> {
    if given_up.is_empty() {
        return Some(Command::new(binary()));
    }
    let with = |program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", given_up, "--inh-caps", given_up]).arg(program);
        command
    };
    let may = with(Path::new("true")).output().is_ok_and(|ran| ran.status.success());
    may.then(|| with(binary()))
}

/// A task for each deed, and one that reads afterwards, because it has the lowest priority.
fn workflow() -> String {
    let inputs = "inputs={d='data',m='mine',b='big',o='made'}";
    let mut text = String::from(
        "[[task]]\nname='make'\ncommand=['sh','-c','mkdir -p made/sub; echo m > made/sub/m']\n\
         outputs={o={dir='made',keep=true}}\n",
    );
    let own = "echo own >> made/sub/m; echo own > made/new";
    for (number, deed) in DEEDS.iter().enumerate() {
        text.push_str(&format!(
            "[[task]]\nname='spoil-{number}'\npriority=2\n{inputs}\n\
             command=['sh','-c','({deed}); {own}']\n"
        ));
    }
    text.push_str(&format!(
        "[[task]]\nname='read'\npriority=1\n{inputs}\n\
         command=['sh','-c','cat data/a data/sub/b data/link mine made/sub/m > seen; \
         wc -c < big >> seen; ls data data/sub made >> seen']\n\
         outputs={{seen={{file='seen',keep=true}}}}\n"
    ));
    text
}

/// Names and bytes of the user's files.
fn contents(sandbox: &Sandbox) -> Vec<(String, Vec<u8>)> {
    let root = sandbox.path("");
    let mut files: Vec<_> = ["data", "mine", "big"]
        .iter()
        .flat_map(|name| match root.join(name) {
            path if path.is_dir() => files_below(&path),
            path => vec![path],
        })
        .map(|path| (path.display().to_string(), fs::read(&path).expect("it is there")))
        .collect();
    files.sort();
    files
}

#[test]
fn what_a_task_does_to_its_inputs_stays_with_it() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("data/sub")).expect("a directory");
    sandbox.write("data/a", "a\n");
    sandbox.write("data/sub/b", "b\n");
    symlink("a", sandbox.path("data/link")).expect("a link");
    sandbox.write("mine", "mine\n");
    sandbox.write("big", vec![b'u'; 100_000]);
    sandbox.write("w.toml", workflow());
    let before = contents(&sandbox);
    for (number, given_up) in GIVEN_UP.iter().enumerate() {
        let Some(mut up) = restricted(given_up) else {
            skip("rights cannot be given up here");
            continue;
        };
        let (dir, out) = (format!("instance-{number}"), format!("out-{number}"));
        up.current_dir(sandbox.path(""))
            .args(["--dir", &dir, "up", "--nodes", "1", "--slots", "1"]);
        sandbox.start_command(up).end().ok();
        let ask = |arguments: &[&str]| sandbox.starling(&[&["--dir", &dir], arguments].concat());
        // A task that was able to change a copy has failed.
        let ran = ask(&["submit", "--file", "w.toml", "--wait"]);
        assert_eq!(contents(&sandbox), before, "rights {given_up}: {ran:?}");
        assert!(sandbox.path("data").read_dir().expect("it is there").count() == 3);
        ask(&["job", "fetch", "last", "-o", &out]).ok();
        let seen = fs::read_to_string(sandbox.path(&out).join("seen")).expect("it was kept");
        let expected = "a\nb\na\nmine\nm\n100000\n\
                        data:\na\nlink\nsub\n\ndata/sub:\nb\n\nmade:\nsub\n";
        assert_eq!(seen, expected, "rights {given_up}: {ran:?}");
        let made = files_below(&sandbox.path(&out).join("made"));
        assert_eq!(made, [sandbox.path(&out).join("made/sub/m")], "rights {given_up}");
        let listed = ask(&["task", "list", "last", "--json"]).ok().stdout;
        assert!(listed.contains("spoil-0"), "{listed}");
        let told = ask(&["task", "explain", "last", "spoil-0"]).ok().stdout;
        if told.contains("changed") {
            let why = "data/a' was changed while the task ran: the node drops its copy";
            assert!(told.contains(why), "{told}");
        }
        ask(&["down"]).ok();
    }
}

/// A file that a task declares as its output too is a copy of its own.
#[test]
fn a_task_may_replace_its_own_input() {
    let sandbox = Sandbox::new();
    sandbox.write("h.txt", "old\n");
    sandbox.write(
        "w.toml",
        "[[task]]\nname='t'\ncommand=['sh','-c','echo new >> h.txt']\ninputs={i='h.txt'}\n\
         outputs={o={file='h.txt',keep=true}}\n\
         [[task]]\nname='r'\ncommand=['sh','-c','cat h.txt > seen']\ninputs={i='h.txt'}\n\
         outputs={s={file='seen',keep=true}}\n",
    );
    sandbox.starling(&["run", "--nodes", "1", "--slots", "1", "--output", "out", "w.toml"]).ok();
    assert_eq!(fs::read_to_string(sandbox.path("h.txt")).expect("it stays"), "old\n");
    for kept in ["out/h.txt", "out/seen"] {
        assert_eq!(fs::read_to_string(sandbox.path(kept)).expect("it was kept"), "old\nnew\n");
    }
}

/// A pattern that matched nothing gives its reader no argument.
#[test]
fn a_reader_of_an_empty_pattern_has_no_files() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "w.toml",
        "[[task]]\nname='t'\ncommand=['true']\n\
         outputs={q={glob='q-*.txt',optional=true}}\n\
         [[task]]\nname='r'\ncommand=['sh','-c','echo $# > n','sh','{in:p}']\n\
         inputs={p='q-*.txt'}\noutputs={n={file='n',keep=true}}\n",
    );
    sandbox.starling(&["run", "--nodes", "1", "--slots", "1", "--output", "out", "w.toml"]).ok();
    assert_eq!(fs::read_to_string(sandbox.path("out/n")).expect("it was kept"), "0\n");
}
