//! What the simulation promises to those who use it.

use std::cell::RefCell;
use std::rc::Rc;

use futures::{FutureExt, TryStreamExt};
use larder_testkit::sim::{Change, Sim, Trace, Weather};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};

fn create(name: &str) -> (Path, object_store::PutPayload, object_store::PutOptions) {
    (Path::from(name), name.to_owned().into(), PutMode::Create.into())
}

/// Three actors that create, list, read and delete, one of them with a pause.
fn busy(seed: u64, weather: Weather) -> Trace {
    let mut sim = Sim::new(seed, weather);
    for name in ["a", "b", "c"] {
        sim.actor(name, move |life| {
            async move {
                for n in 0..4 {
                    let (path, payload, options) = create(&format!("{name}/{}/{n}", life.number));
                    let _ = life.store.put_opts(&path, payload, options).await;
                    tokio::time::sleep(std::time::Duration::from_secs(n)).await;
                    let _ = life.store.list(None).try_collect::<Vec<_>>().await;
                    life.machine.linger(3).await;
                    let _ = life.store.delete(&path).await;
                }
            }
            .boxed_local()
        });
    }
    sim.run(600, |_, _| Ok(())).expect("nothing is checked")
}

#[test]
fn one_seed_is_one_run_and_another_is_another() {
    for seed in 0..5 {
        // Requests that hang are abandoned by nobody here.
        let weather = Weather { hangs: 0, ..Weather::ROUGH };
        assert_eq!(busy(seed, weather), busy(seed, weather));
        assert_ne!(busy(seed, weather).hash(), busy(seed + 1, weather).hash());
    }
}

#[test]
fn of_creators_one_wins() {
    for seed in 0..50 {
        let won = Rc::new(RefCell::new(0));
        let mut sim = Sim::new(seed, Weather::FINE);
        for name in ["a", "b"] {
            let won = won.clone();
            sim.actor(name, move |life| {
                let won = won.clone();
                async move {
                    let (path, payload, options) = create("one");
                    if life.store.put_opts(&path, payload, options).await.is_ok() {
                        *won.borrow_mut() += 1;
                    }
                    std::future::pending().await
                }
                .boxed_local()
            });
        }
        sim.run(2, |_, _| Ok(())).expect("nothing is checked");
        assert_eq!(*won.borrow(), 1);
    }
}

#[test]
fn a_request_without_answer_may_take_effect_much_later() {
    let weather = Weather { fails_after: 10_000, late: 100, ..Weather::FINE };
    let (mut late, mut never) = (0, 0);
    for seed in 0..40 {
        let told = Rc::new(RefCell::new(None));
        let mut sim = Sim::new(seed, weather);
        let heard = told.clone();
        sim.actor("a", move |life| {
            let heard = heard.clone();
            async move {
                if life.number > 0 {
                    std::future::pending::<()>().await;
                }
                let (path, payload, options) = create("object");
                *heard.borrow_mut() = Some(life.store.put_opts(&path, payload, options).await.is_ok());
            }
            .boxed_local()
        });
        // Somebody who keeps the world turning.
        sim.actor("b", |life| async move { drop(life.store.get(&Path::from("nothing")).await) }.boxed_local());
        let mut created = None;
        let check = |world: &larder_testkit::sim::World, step| {
            if world.take_changes().contains(&Change::Created("object".to_owned())) {
                created = Some(step);
            }
            Ok(())
        };
        sim.run(300, check).expect("nothing is wrong");
        assert_eq!(*told.borrow(), Some(false));
        late += u32::from(created.is_some_and(|step| step > 10));
        never += u32::from(created.is_none());
    }
    assert!(late > 3 && never > 0, "{late} late, {never} never");
}

#[test]
fn a_listing_is_no_snapshot() {
    // The one who lists may see what came later and miss what was there when it began.
    let mut torn = 0;
    for seed in 0..100 {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut sim = Sim::new(seed, Weather::FINE);
        let world = sim.world();
        let plain = world.plain();
        for name in ["a1", "a2", "a3", "z"] {
            let (path, payload, options) = create(name);
            Sim::alone(plain.put_opts(&path, payload, options)).expect("plain stores do not fail");
        }
        let found = seen.clone();
        sim.actor("lists", move |life| {
            let found = found.clone();
            async move {
                let metas: Vec<_> = life.store.list(None).try_collect().await.expect("it is fine weather");
                *found.borrow_mut() = metas.iter().map(|meta| meta.location.to_string()).collect();
                std::future::pending().await
            }
            .boxed_local()
        });
        sim.actor("moves", |life| {
            async move {
                let (path, payload, options) = create("a0");
                drop(life.store.put_opts(&path, payload, options).await);
                drop(life.store.delete(&Path::from("z")).await);
                std::future::pending().await
            }
            .boxed_local()
        });
        sim.run(9, |_, _| Ok(())).expect("nothing is checked");
        let seen = seen.borrow();
        let has = |name: &str| seen.iter().any(|seen| seen == name);
        torn += u32::from(!has("a0") && !has("z"));
    }
    assert!(torn > 0, "both were never missed, although at each moment one was there");
}
