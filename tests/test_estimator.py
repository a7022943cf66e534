"""SeeGera as an estimator of scikit-learn."""

import cases
import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
import torch_geometric.data
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import seegera_fast as sf

SMALL = {"embedding_dim": 4, "hidden_dim": 5, "epochs": 3, "random_state": 0}
ONE_OBJECT = "a graph is one object: its rows can't be taken apart"
COMPLETE = "the check's graph is complete, so there are no pairs without a link to score links against"


@pytest.fixture(scope="module")
def data():
    graph = cases.large_graph(200, 20)
    return graph.adjacency.to_scipy(), graph.features.to_scipy(), np.arange(200) % 3


def estimator(**options):
    return sf.SeeGeraEstimator(**{**SMALL, "fields": {"likelihood": "mse"}, **options})


@pytest.mark.filterwarnings("ignore:X")
def test_checks_of_scikit_learn():
    found = check_estimator(
        estimator(valid=0),
        expected_failed_checks={
            "check_fit_score_takes_y": COMPLETE,
            "check_pipeline_consistency": COMPLETE,
            "check_methods_subset_invariance": ONE_OBJECT,
            "check_fit_idempotent": ONE_OBJECT,
        },
        on_skip=None,
    )
    status = [check["status"] for check in found]
    assert status.count("passed") >= 40
    assert status.count("xfail") == 4


def test_the_embedding_is_that_of_the_task(data):
    adjacency, features, _ = data
    fitted = estimator().fit(adjacency, features=features)
    graph = sf.Graph(adjacency, features)
    result = sf.tasks.link_prediction(
        graph,
        "default",
        seed=fitted.model_.seed,
        valid=0.1,
        test=0.0,
        progress=False,
        likelihood="mse",
        **{name: SMALL[name] for name in ("embedding_dim", "hidden_dim", "epochs")},
    )
    assert np.array_equal(fitted.embedding_, result.model.embed(graph))
    assert np.array_equal(fitted.transform(adjacency), fitted.embedding_)
    assert np.array_equal(fitted.transform(graph), fitted.embedding_)
    assert (fitted.n_iter_, fitted.n_features_in_) == (3, 200)
    pairs = [[0, 1], [5, 9]]
    assert np.array_equal(fitted.predict_links(pairs), result.model.link_scores(pairs, graph, calibrated=True))
    assert fitted.score(adjacency) == pytest.approx(result.valid_auc, abs=0.1)


@pytest.mark.parametrize("form", ["csr", "coo", "dense", "graph", "torch", "frame"])
def test_forms_of_a_graph(data, form):
    adjacency, features, _ = data
    forms = {
        "csr": scipy.sparse.csr_array(adjacency),
        "coo": adjacency.tocoo(),
        "dense": adjacency.toarray(),
        "graph": sf.Graph(adjacency, features),
        "torch": torch.from_numpy(adjacency.toarray()).to_sparse_csr(),
        "frame": adjacency.toarray().tolist(),
    }
    given = {} if form == "graph" else {"features": features.toarray() if form == "frame" else features}
    wanted = estimator().fit(adjacency, features=features).embedding_
    assert np.array_equal(estimator().fit_transform(forms[form], **given), wanted)


def test_labels_are_no_features(data):
    """A vector is left alone, and so is a matrix where the features are given; else it might be meant as these."""
    adjacency, features, labels = data
    several = np.eye(3)[labels]
    want = estimator().fit_transform(adjacency, features=features)
    assert estimator().fit(adjacency, labels).graph_.num_features == 200
    for y in (labels, several):
        assert np.array_equal(estimator().fit_transform(adjacency, y, features=features), want)
    for x in (adjacency, sf.Graph(adjacency, features)):
        for y in (several, labels[:, None], features):
            with pytest.raises(
                ValueError, match=r"y: got a matrix, want a vector, .* or features= if these are the feat"
            ):
                make_pipeline(estimator(), LogisticRegression()).fit(x, y)


def test_graphs_of_other_libraries():
    """What makes a Graph of them is named, not scikit-learn's advice to reshape them."""
    data = torch_geometric.data.Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    for given, wanted in (
        (networkx.karate_club_graph(), "Graph, want a matrix or a Graph; Graph.from_networkx takes those of networkx"),
        (data, "Data, want a matrix or a Graph; Graph.from_pyg takes those of torch_geometric"),
    ):
        with pytest.raises(TypeError, match=f"^X: got {wanted}$"):
            estimator().fit(given)


def test_normalising_by_fields_is_normalising(data):
    adjacency, features, _ = data
    fields = {"likelihood": "mse", "normalize_features": True}
    found = estimator(fields=fields).fit_transform(adjacency, features=features)
    assert np.array_equal(found, estimator(normalize_features=True).fit_transform(adjacency, features=features))


def test_a_pipeline_and_a_search(data):
    adjacency, features, labels = data
    pipeline = make_pipeline(estimator(), LogisticRegression())
    pipeline.fit(adjacency, labels, seegeraestimator__features=features)
    assert pipeline.predict(adjacency).shape == (200,)
    every = np.arange(200)
    search = GridSearchCV(estimator(), {"embedding_dim": [2, 4], "variant": ["v1", "v3"]}, cv=[(every, every)])
    search.fit(sf.Graph(adjacency, features).adjacency.to_scipy(), features=features)
    assert set(search.best_params_) == {"embedding_dim", "variant"}
    best = clone(estimator()).set_params(**search.best_params_).fit(adjacency, features=features)
    assert search.best_score_ == pytest.approx(best.score(adjacency))
    whole = GridSearchCV(make_pipeline(estimator(), LogisticRegression()), {"seegeraestimator__dropout": [0.0, 0.5]})
    whole.set_params(cv=[(every, every)]).fit(adjacency, labels, seegeraestimator__features=features)
    assert 0 <= whole.best_score_ <= 1


def test_the_score_is_of_links_that_training_has_not_seen(data):
    adjacency, features, _ = data
    fitted = estimator().fit(adjacency, features=features)
    assert 0 <= fitted.score(adjacency) <= 1
    with pytest.raises(ValueError, match="X: has 0 links that training has not seen"):
        estimator(valid=0).fit(adjacency, features=features).score(adjacency)
    with pytest.raises(ValueError, match="X: got 3 nodes, want 200"):
        fitted.score(sf.Graph(np.eye(3)))


def test_features_are_normalised_wherever_they_are_read(data):
    adjacency, features, _ = data
    fitted = estimator(normalize_features=True).fit(adjacency, features=features)
    assert np.array_equal(fitted.transform(adjacency), fitted.embedding_)
    assert not np.array_equal(estimator().fit_transform(adjacency, features=features), fitted.embedding_)


def test_data_frames(data):
    pandas = pytest.importorskip("pandas")
    adjacency, features, _ = data
    table = pandas.DataFrame(np.asarray(sf.Graph(adjacency, features).features.to_dense())).add_prefix("f")
    want = estimator().fit(adjacency, features=features)
    square = pandas.DataFrame(sf.Graph(adjacency).adjacency.to_scipy().toarray())
    fitted = estimator().fit(square, features=table)
    assert np.array_equal(fitted.embedding_, want.embedding_)
    assert np.array_equal(fitted.transform(square, table), want.transform(adjacency, features))
    with pytest.raises(ValueError, match=r"has the features of the model in another order .feature 0 is 'f1'"):
        fitted.transform(square, table[["f1", "f0", *table.columns[2:]]])
    with pytest.raises(ValueError, match=r"^X: got rows and columns with the same labels in .* X\.loc\[X\.columns\]"):
        estimator().fit(square[[1, 0, *square.columns[2:]]])


def test_names_of_columns(data):
    pandas = pytest.importorskip("pandas")
    adjacency, features, _ = data
    pipeline = make_pipeline(estimator(), StandardScaler()).set_output(transform="pandas")
    frame = pipeline.fit(adjacency, seegeraestimator__features=features).transform(adjacency)
    assert isinstance(frame, pandas.DataFrame)
    assert (
        list(frame.columns) == list(pipeline[0].get_feature_names_out()) == [f"seegeraestimator{k}" for k in range(4)]
    )
    with pytest.raises(NotFittedError):
        estimator().get_feature_names_out()


def test_a_graph_after_a_matrix_with_names(data):
    """The names of an earlier fit's nodes are none of a later one's."""
    pandas = pytest.importorskip("pandas")
    adjacency, _, _ = data
    names = [f"n{node}" for node in range(200)]
    square = pandas.DataFrame(adjacency.toarray(), columns=names)
    small = cases.large_graph(30, 5)
    for given in (small, small.adjacency.to_dense()):
        fitted = estimator(epochs=1).fit(square)
        assert fitted.feature_names_in_.tolist() == names
        fitted.fit(given)
        assert not hasattr(fitted, "feature_names_in_")
        assert fitted.n_features_in_ == 30
        assert fitted.transform(small.adjacency.to_scipy()).shape == (30, 4)


def test_metadata_routing(data):
    adjacency, features, labels = data
    with config_context(enable_metadata_routing=True):
        asking = estimator().set_fit_request(features=True).set_transform_request(features=True)
        pipeline = make_pipeline(asking, LogisticRegression()).fit(adjacency, labels, features=features)
        assert pipeline.predict(adjacency, features=features).shape == (200,)
        every = np.arange(200)
        search = GridSearchCV(asking.set_score_request(features=True), {"embedding_dim": [2, 4]}, cv=[(every, every)])
        assert 0 <= search.fit(adjacency, features=features).best_score_ <= 1
    assert np.array_equal(pipeline[0].embedding_, estimator().fit(adjacency, features=features).embedding_)


def test_what_parameters_may_be(data):
    adjacency, _, _ = data
    for name, value in {"valid": 1.0, "variant": "v4", "preset": "core", "epochs": 0, "fields": 3}.items():
        with pytest.raises((TypeError, ValueError), match=f"{name}: got"):
            estimator(**{name: value}).fit(adjacency)
    with pytest.raises(NotFittedError):
        estimator().transform(adjacency)
    with pytest.raises(ValueError, match=r"^fields: got 'valid', want names of fields of SeeGeraConfig or Train"):
        estimator(fields={"valid": 0.3}).fit(adjacency)
    with pytest.raises(TypeError, match="unknown field 'epoch'"):
        estimator(fields={"epoch": 3}).fit(adjacency)
