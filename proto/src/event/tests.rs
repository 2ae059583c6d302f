use super::*;

#[test]
fn events_round_trip_and_stay_small() {
    let task = TaskId { job: JobId(9), local: LocalId::new(PartitionId(77), 1234) };
    let attempt = Attempt::new(1, 3);
    let (threshold, steal) = (f64::INFINITY, [Span(1), Span(2)]);
    let retuned = Event::Retuned { from: 1, to: 0, threshold, wait_max: Span(7), steal };
    let events = [
        (Time(5_000), Event::Visible { job: JobId(9) }),
        (
            Time(4_000),
            Event::Queued {
                task,
                attempt,
                local_queue: true,
                reason: Reason::BigHere,
                input_bytes: 7,
            },
        ),
        (
            Time(9_000),
            Event::Ended {
                task,
                attempt,
                end: End::Failed,
                started: Time(8_000),
                moved_bytes: 1,
                local_bytes: 2,
            },
        ),
        (Time(9_000), Event::Widened { task, attempt, slot: 3 }),
        (Time(9_000), Event::PartBegan { task, attempt, slot: 4 }),
        (Time(9_001), Event::PartEnded { task, attempt }),
        (Time(9_001), Event::Shifted { tasks: 2_000, wait_max: Span(20) }),
        (Time(9_001), Event::PolicyChanged { from: 3, to: 1 }),
        (Time(9_001), retuned),
        (Time(9_001), Event::JobEnded { job: JobId(9), end: End::Done }),
    ];
    let mut encoder = Encoder::default();
    for (time, event) in &events {
        encoder.push(*time, event);
    }
    let block = encoder.take();
    let back: Result<Vec<_>, _> = Decoder::new(&block).collect();
    assert_eq!(back.unwrap(), events);
    assert!(block.len() < 20 * events.len());
    assert!(Decoder::new(&block[..block.len() - 1]).any(|event| event.is_err()));
    assert!(Decoder::new(&[99, 0]).all(|event| event.is_err()));
}
