//! Events between tasks: `starling event send` and `recv`, through kills of nodes.

use std::collections::BTreeMap;
use std::fs;

use starling_tests::{Instance, Ran, Sandbox, binary, repository, wait_until};

/// Writes a script for the shell, in which `starling` is the tested program.
fn script(sandbox: &Sandbox, name: &str, text: &str) -> String {
    let program = binary().display();
    let text = format!("set -e\nstarling() {{ {program} \"$@\"; }}\n{text}");
    sandbox.write(name, text).display().to_string()
}

fn example(sandbox: &Sandbox, name: &str) -> String {
    let path = repository().join("examples/events").join(name);
    script(sandbox, name, &fs::read_to_string(path).expect("the example exists"))
}

/// Submits a script and waits for its job.
fn run(instance: &Instance, script: &str, more: &[&str]) -> Ran {
    let mut arguments = vec!["submit", "--wait", "--timeout", "100s", "--", "sh", script];
    arguments.extend(more);
    instance.starling(&arguments)
}

#[test]
fn two_activities_answer_each_other_on_one_slot() {
    let instance = Instance::up(1, 1);
    let ping = example(instance.sandbox(), "ping.sh");
    run(&instance, &ping, &["6"]).ok();
    let output = instance.starling(&["job", "output", "last"]).ok().stdout;
    assert!(output.lines().any(|line| line.ends_with('6')), "{output}");
    instance.down();
}

#[test]
fn activities_search_for_supernovae() {
    let instance = Instance::up(2, 2);
    let search = example(instance.sandbox(), "supernova.sh");
    run(&instance, &search, &["7"]).ok();
    let output = instance.starling(&["job", "output", "last"]).ok().stdout;
    for pair in 0..7 {
        let expected =
            if pair % 3 == 0 { format!("{pair} {pair}") } else { format!("{pair} none") };
        assert!(output.lines().any(|line| line.trim_end().ends_with(&expected)), "{output}");
    }
    instance.down();
}

/// Children send the numbers up to `$2`, each committed; the parent keeps all that it receives.
const COLLECT: &str = r#"
role=$1 last=$2 out=$3
if [ "$role" = child ]; then
  sent=$(cat "${STARLING_STATE:-/dev/null}")
  echo "$STARLING_NODE" > "$out.sender"
  while [ "${sent:-0}" -lt "$last" ]; do
    sent=$((${sent:-0} + 1))
    starling event send parent --data "$sent"
    echo "$sent" | starling commit --state -
    sleep 0.1
  done
  exit 0
fi
starling spawn --key children --array 1-3 -- sh "$0" child "$last" "$out"
log=$(cat "${STARLING_STATE:-/dev/null}")
count=$(printf '%s\n' "$log" | grep -c ' ' || true)
while [ "$count" -lt $((3 * last)) ]; do
  line=$(printf '%s\n' "$log" | starling event recv --state -)
  log=$(printf '%s\n%s' "$log" "$line")
  count=$((count + 1))
  echo "$STARLING_NODE" > "$out.receiver"
  echo "$count" > "$out.count"
done
printf '%s\n' "$log" > "$out.new"
mv "$out.new" "$out"
"#;

#[test]
fn events_arrive_once_and_in_order_although_the_nodes_of_both_sides_are_killed() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    instance.wait_for_copies();
    let collect = script(instance.sandbox(), "collect.sh", COLLECT);
    let out = instance.sandbox().path("out");
    let path = out.display().to_string();
    let read = |name: &str| {
        let text = fs::read_to_string(format!("{path}.{name}")).unwrap_or_default();
        text.trim().parse::<u32>().ok()
    };
    let words = ["submit", "--wait", "--timeout", "200s", "--", "sh", &collect];
    let running = instance.start(&[&words[..], &["parent", "20", &path]].concat());
    wait_until("some events have come", || read("count").is_some_and(|count| count >= 6));
    let receiver = read("receiver").expect("it has written it");
    instance.kill(receiver);
    instance.start_missing();
    wait_until("more events have come", || read("count").is_some_and(|count| count >= 20));
    instance.wait_for_copies();
    let sender = read("sender").expect("it has written it");
    instance.kill(sender);
    instance.start_missing();
    running.end().ok();
    let text = fs::read_to_string(&out).expect("the parent has written it");
    let mut received: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (from, number) = line.split_once(' ').expect("sender and number");
        received.entry(from).or_default().push(number.parse().expect("a number"));
    }
    assert_eq!(received.len(), 3, "{text}");
    for (from, numbers) in received {
        assert_eq!(numbers, (1..=20).collect::<Vec<_>>(), "{from}");
    }
    instance.down();
}

#[test]
fn bad_events_are_errors_in_the_task_that_sends_them() {
    let sandbox = Sandbox::new();
    let outside = sandbox.starling(&["event", "recv"]).expect_code(4);
    assert!(outside.stderr.contains("not inside a task"), "{}", outside.stderr);
    drop(sandbox);
    let instance = Instance::up(1, 2);
    let out = instance.sandbox().path("out").display().to_string();
    let lines = [
        "starling event send parent --data x",
        "starling event send 3 --data x",
        "starling event send 0.77 --data x",
        "starling event send 77/0.1 --data x",
        "starling event send 0 --data x",
        "head -c 70000 /dev/zero | starling event send $STARLING_TASK_ID -",
        "starling event send 0,1 --data x",
        "starling event recv --timeout 10ms",
        "starling event recv --from 9",
        "STARLING_TOKEN=00112233445566778899aabbccddeeff starling event recv",
    ];
    let tries: Vec<String> = lines
        .iter()
        .map(|line| format!("{{ {line}; }} 2>> {out} || echo code $? >> {out}"))
        .collect();
    let text = format!(
        "starling spawn -- true\nstarling await\n{}\n\
         starling event send $STARLING_TASK_ID --data last\n\
         starling event recv --json >> {out}\n",
        tries.join("\n")
    );
    let task = script(instance.sandbox(), "task.sh", &text);
    run(&instance, &task, &[]).ok();
    let errors = fs::read_to_string(&out).expect("the task has written it");
    for expected in [
        "the task has no parent",
        "no child 3",
        "the job has no task 0.77",
        "task 77/0.1 is of another job",
        "has ended: it is done",
        "at most 65536 bytes",
        "several tasks are named",
        "no child 9",
        "no running task of this node has this token",
        "\"text\":\"last\"",
    ] {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
    let codes: Vec<&str> = errors.lines().filter(|line| line.starts_with("code ")).collect();
    assert_eq!(codes.len(), lines.len(), "{errors}");
    assert_eq!(codes[7], "code 1", "no event in time");
    instance.down();
}

#[test]
fn a_reader_sees_that_a_task_waits_for_an_event() {
    let instance = Instance::up(1, 1);
    let task = script(instance.sandbox(), "task.sh", "starling event recv\n");
    let job = instance.starling(&["submit", "--", "sh", &task]).ok().stdout.trim().to_owned();
    let explain = || instance.starling(&["task", "explain", &job]).stdout;
    wait_until("it waits", || explain().contains("it waits for an event"));
    // It holds no slot.
    instance.starling(&["submit", "--wait", "--timeout", "60s", "--", "true"]).ok();
    instance.starling(&["job", "cancel", &job]).ok();
    instance.down();
}
