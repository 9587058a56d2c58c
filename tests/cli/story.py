"""A trained model and tables of people, for the commands of the ledger."""

import csv

import numpy as np

import unbayes as ub
from problems import KEY

ROWS = 200


class Story:
    """A trained model and tables of people, in a folder."""

    def __init__(self, folder):
        rng = np.random.default_rng(0)
        self.folder, self.x = folder, rng.normal(size=(ROWS, 2))
        self.y = self.x @ [1.0, -2.0] + 0.3 * rng.normal(size=ROWS)
        self.ids = [f"c{i}" for i in range(ROWS)]
        self.model = ub.linear_regression(2, prior_scale=3.0, noise_scale=0.3)
        self.trained = ub.fit(self.model, (self.x, self.y), ids=self.ids, key=KEY)
        notes = {"columns": ["age", "dose"], "target": "healed"}
        file = folder / "model.unbayes"
        ub.save(file, self.trained.posterior, self.model, memory=self.trained.memory, notes=notes)

    def table(self, *rows, name="rows.csv"):
        path = self.folder / name
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["customer", "healed", "dose", "age", "person"])
            writer.writerows(
                [self.ids[i], *map(repr, [float(self.y[i]), *self.x[i, ::-1].tolist()]), f"p{i % 7}"]
                for i in rows
            )
        return path
