package main

var bridges = []mutant{}
